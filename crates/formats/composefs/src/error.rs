//! The checks that a composefs image can fail in addition to those of EROFS.

use forerun_vfs::{Corrupt, Error, NodeId};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the contents are in an object, but the image does not name it")]
    NoRedirect,
    #[error(
        "the redirect {:?} is not the name of an object",
        String::from_utf8_lossy(path)
    )]
    Redirect { path: Vec<u8> },
    #[error("the attribute overlay.metacopy has an unknown form of {len} bytes")]
    Metacopy { len: usize },
    #[error("the image has no digest of the object, and verity=require needs one")]
    NoDigest,
}

impl Check {
    /// Returns the error that this check failed on `node`.
    pub fn at(self, node: NodeId) -> Error {
        // Attributes have no offset here, so the node identifies the location.
        Corrupt::new("composefs", Some(node), 0, self).into()
    }
}
