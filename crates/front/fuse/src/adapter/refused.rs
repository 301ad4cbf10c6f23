//! Requests that images do not support.
//!
//! ENOSYS tells the kernel not to send the request again; EROFS answers requests that would change
//! the image.

macro_rules! refuse_for_images {
    () => {
        $crate::refuse::refuse!(Access ENOSYS:
            access(INodeNo, fuser::AccessFlags) -> ReplyEmpty;
        );
        $crate::refuse::refuse!(Flush ENOSYS:
            flush(INodeNo, FileHandle, LockOwner) -> ReplyEmpty;
        );
        // The kernel ignores this answer.
        $crate::refuse::refuse!(Releasedir ENOSYS:
            releasedir(INodeNo, FileHandle, OpenFlags) -> ReplyEmpty;
        );
        // After ENOSYS the kernel reports success for fsync(2), which is correct for an image,
        // handles locks itself, and copies by reading.
        $crate::refuse::refuse!(Other ENOSYS:
            fsync(INodeNo, FileHandle, bool) -> ReplyEmpty;
            fsyncdir(INodeNo, FileHandle, bool) -> ReplyEmpty;
            getlk(INodeNo, FileHandle, LockOwner, u64, u64, i32, u32) -> fuser::ReplyLock;
            setlk(INodeNo, FileHandle, LockOwner, u64, u64, i32, u32, bool) -> ReplyEmpty;
            bmap(INodeNo, u32, u64) -> fuser::ReplyBmap;
            poll(INodeNo, FileHandle, fuser::PollNotifier, fuser::PollEvents, fuser::PollFlags)
                -> fuser::ReplyPoll;
        );
        $crate::refuse::refuse!(Write EROFS:
            setattr(INodeNo, Option<u32>, Option<u32>, Option<u32>, Option<u64>,
                Option<fuser::TimeOrNow>, Option<fuser::TimeOrNow>, Option<std::time::SystemTime>,
                Option<FileHandle>, Option<std::time::SystemTime>, Option<std::time::SystemTime>,
                Option<std::time::SystemTime>, Option<fuser::BsdFileFlags>) -> ReplyAttr;
            mknod(INodeNo, &OsStr, u32, u32, u32) -> ReplyEntry;
            mkdir(INodeNo, &OsStr, u32, u32) -> ReplyEntry;
            unlink(INodeNo, &OsStr) -> ReplyEmpty;
            rmdir(INodeNo, &OsStr) -> ReplyEmpty;
            symlink(INodeNo, &OsStr, &std::path::Path) -> ReplyEntry;
            rename(INodeNo, &OsStr, INodeNo, &OsStr, fuser::RenameFlags) -> ReplyEmpty;
            link(INodeNo, INodeNo, &OsStr) -> ReplyEntry;
            write(INodeNo, FileHandle, u64, &[u8], fuser::WriteFlags, OpenFlags,
                Option<LockOwner>) -> fuser::ReplyWrite;
            create(INodeNo, &OsStr, u32, u32, i32) -> fuser::ReplyCreate;
            setxattr(INodeNo, &OsStr, &[u8], i32, u32) -> ReplyEmpty;
            removexattr(INodeNo, &OsStr) -> ReplyEmpty;
            fallocate(INodeNo, FileHandle, u64, u64, i32) -> ReplyEmpty;
            copy_file_range(INodeNo, FileHandle, u64, INodeNo, FileHandle, u64, u64,
                fuser::CopyFileRangeFlags) -> fuser::ReplyWrite;
        );
    };
}

pub(super) use refuse_for_images;
