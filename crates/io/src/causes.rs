//! The causes of an error, including those inside I/O errors.

use std::error::Error;
use std::io;
use std::sync::Arc;

/// Returns an error and its causes, the outermost first.
///
/// [`Error::source`] of an I/O error skips the error that it wraps. This function does not.
pub fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        if let Some(shared) = error.downcast_ref::<Arc<io::Error>>() {
            return Some(&**shared);
        }
        let inner = error.downcast_ref::<io::Error>();
        match inner.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(Arc<io::Error>);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn errors_that_io_errors_wrap_are_causes() {
        let inner = io::Error::other(std::fmt::Error);
        let shared = Arc::new(io::Error::other(inner));
        let outer = io::Error::other(Outer(shared));
        let mut all = causes(&outer);
        assert!(all.any(|cause| cause.is::<std::fmt::Error>()));
    }
}
