//! Requests that volumes do not support.

macro_rules! refuse_for_volumes {
    () => {
        $crate::refuse::refuse!(Access ENOSYS:
            access(INodeNo, fuser::AccessFlags) -> ReplyEmpty;
        );
        // Writes report errors at once, so FLUSH on close(2) is not needed.
        $crate::refuse::refuse!(Flush ENOSYS:
            flush(INodeNo, FileHandle, LockOwner) -> ReplyEmpty;
        );
        // After ENOSYS the kernel opens directories itself and caches their listings.
        $crate::refuse::refuse!(Opendir ENOSYS:
            opendir(INodeNo, OpenFlags) -> ReplyOpen;
        );
        $crate::refuse::refuse!(Releasedir ENOSYS:
            releasedir(INodeNo, FileHandle, OpenFlags) -> ReplyEmpty;
        );
        // After ENOSYS the kernel asks no more.
        $crate::refuse::refuse!(Getxattr ENOSYS:
            getxattr(INodeNo, &OsStr, u32) -> ReplyXattr;
        );
        // After ENOSYS the kernel handles locks itself and copies by reading and writing.
        $crate::refuse::refuse!(Other ENOSYS:
            setxattr(INodeNo, &OsStr, &[u8], i32, u32) -> ReplyEmpty;
            removexattr(INodeNo, &OsStr) -> ReplyEmpty;
            getlk(INodeNo, FileHandle, LockOwner, u64, u64, i32, u32) -> fuser::ReplyLock;
            setlk(INodeNo, FileHandle, LockOwner, u64, u64, i32, u32, bool) -> ReplyEmpty;
            bmap(INodeNo, u32, u64) -> fuser::ReplyBmap;
            poll(INodeNo, FileHandle, fuser::PollNotifier, fuser::PollEvents, fuser::PollFlags)
                -> fuser::ReplyPoll;
            copy_file_range(INodeNo, FileHandle, u64, INodeNo, FileHandle, u64, u64,
                fuser::CopyFileRangeFlags) -> fuser::ReplyWrite;
        );
        // Formats without owners do not have these either.
        $crate::refuse::refuse!(Write EPERM:
            symlink(INodeNo, &OsStr, &std::path::Path) -> ReplyEntry;
            link(INodeNo, INodeNo, &OsStr) -> ReplyEntry;
        );
    };
}

pub(super) use refuse_for_volumes;
