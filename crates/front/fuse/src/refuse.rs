//! Generates `fuser::Filesystem` methods that only count a request and refuse it.

/// Defines such methods, given the operation to count, the errno, and each method's signature after
/// the request.
macro_rules! refuse {
    ($operation:ident $errno:ident: $($name:ident($($ty:ty),+) -> $reply:ty;)*) => {
        $($crate::refuse::refuse!(@ $operation $errno $name [$($ty),+] $reply);)*
    };
    (@ $operation:ident $errno:ident $name:ident [$($ty:ty),+] $reply:ty) => {
        #[allow(clippy::too_many_arguments)]
        fn $name(&self, _: &fuser::Request, $(_: $ty,)+ reply: $reply) {
            self.core.counts.add(Operation::$operation);
            reply.error(Errno::$errno);
        }
    };
}

pub(crate) use refuse;
