//! Requests that no volume has an answer to.

/// Defines the methods for these requests, by `refuse`.
macro_rules! refuse_for_volumes {
    () => {
        $crate::refuse::refuse!(Access ENOSYS:
            access(INodeNo, fuser::AccessFlags) -> ReplyEmpty;
        );
        // A write reports its errors at once; the kernel need not ask on close(2).
        $crate::refuse::refuse!(Flush ENOSYS:
            flush(INodeNo, FileHandle, LockOwner) -> ReplyEmpty;
        );
        // Without these the kernel opens directories by itself, and keeps their listings.
        $crate::refuse::refuse!(Opendir ENOSYS:
            opendir(INodeNo, OpenFlags) -> ReplyOpen;
        );
        $crate::refuse::refuse!(Releasedir ENOSYS:
            releasedir(INodeNo, FileHandle, OpenFlags) -> ReplyEmpty;
        );
        // The kernel asks once, and answers all others itself.
        $crate::refuse::refuse!(Getxattr ENOSYS:
            getxattr(INodeNo, &OsStr, u32) -> ReplyXattr;
        );
        // The kernel then handles locks itself, and copies by reading and writing.
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
        // What formats without owners have neither.
        $crate::refuse::refuse!(Write EPERM:
            symlink(INodeNo, &OsStr, &std::path::Path) -> ReplyEntry;
            link(INodeNo, INodeNo, &OsStr) -> ReplyEntry;
        );
    };
}

pub(super) use refuse_for_volumes;
