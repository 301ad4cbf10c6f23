//! Parsed and validated documents of the OCI specifications, and container images on disk.

pub mod annotations;
pub mod artifact;
pub mod choose;
pub mod layer_contents;
pub mod manifest;
pub mod media;
pub mod on_disk;
mod on_disk_soci;
pub mod platform;
pub mod referrer;
pub mod soci;
