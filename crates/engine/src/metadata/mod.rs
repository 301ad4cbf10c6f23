//! Metadata: read once, in large requests if the driver can say where it is.

mod dense;
mod hints;
mod source;
mod xattr_scan;

pub use source::MetadataSource;
pub use xattr_scan::{Searched, XattrScan};
