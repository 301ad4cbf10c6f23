//! Methods of `fuser::Filesystem` that only count the request and refuse it.

/// Defines such methods: the operation to count, the errno, and the signature of each method after the request.
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
