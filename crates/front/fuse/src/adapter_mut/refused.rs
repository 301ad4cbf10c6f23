//! Requests that no volume has an answer to.

/// The methods of `fuser::Filesystem` that only differ in what they refuse.
macro_rules! refused {
    (@ $operation:ident $errno:ident: $($name:ident($($ty:ty),*) -> $reply:ty;)*) => {
        $(refused!(@@ $operation $errno $name [$($ty),*] $reply);)*
    };
    (@@ $operation:ident $errno:ident $name:ident [$($ty:ty),+] $reply:ty) => {
        #[allow(clippy::too_many_arguments)]
        fn $name(&self, _: &fuser::Request, $(_: $ty,)+ reply: $reply) {
            self.core.counts.add(Operation::$operation);
            reply.error(Errno::$errno);
        }
    };
    () => {
        refused!(@ Access ENOSYS:
            access(INodeNo, fuser::AccessFlags) -> ReplyEmpty;
        );
        // A write reports its errors at once; the kernel need not ask on close(2).
        refused!(@ Flush ENOSYS:
            flush(INodeNo, FileHandle, LockOwner) -> ReplyEmpty;
        );
        // Without these the kernel opens directories by itself, and keeps their listings.
        refused!(@ Opendir ENOSYS:
            opendir(INodeNo, OpenFlags) -> ReplyOpen;
        );
        refused!(@ Releasedir ENOSYS:
            releasedir(INodeNo, FileHandle, OpenFlags) -> ReplyEmpty;
        );
        // The kernel asks once, and answers all others itself.
        refused!(@ Getxattr ENOSYS:
            getxattr(INodeNo, &OsStr, u32) -> ReplyXattr;
        );
        // The kernel then handles locks itself, and copies by reading and writing.
        refused!(@ Other ENOSYS:
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
        refused!(@ Write EPERM:
            symlink(INodeNo, &OsStr, &std::path::Path) -> ReplyEntry;
            link(INodeNo, INodeNo, &OsStr) -> ReplyEntry;
        );
    };
}

pub(super) use refused;
