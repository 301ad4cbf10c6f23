//! The checks that a composefs image can fail in addition to those of EROFS.

use forerun_vfs::{Corrupt, Error, NodeId};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("its contents are elsewhere, and it does not say where")]
    NoRedirect,
    #[error(
        "the redirect {:?} is no name of an object",
        String::from_utf8_lossy(path)
    )]
    Redirect { path: Vec<u8> },
    #[error("an attribute with a digest of {len} bytes that means nothing known")]
    Metacopy { len: usize },
    #[error("its object has no digest, and one is required")]
    NoDigest,
}

impl Check {
    /// Returns the error that this check failed on `node`.
    pub fn at(self, node: NodeId) -> Error {
        // Attributes have no offset here, so the node identifies the location.
        Corrupt::new("composefs", Some(node), 0, self).into()
    }
}
