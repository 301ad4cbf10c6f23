mod dense;
mod hints;
mod source;
mod xattr_scan;

pub use source::MetadataSource;
pub use xattr_scan::{Searched, XattrScan};
