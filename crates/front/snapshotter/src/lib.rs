//! A proxy snapshotter of containerd (docs/containerd.md).
//!
//! containerd asks for snapshots over gRPC: it prepares one, has a layer unpacked into it or a container write to it, and
//! commits or removes it. This crate keeps their records, answers with mounts of overlayfs, and
//! decides which layers need not be unpacked: those of an image that can be read by tables of contents become
//! snapshots without files, and one mount of the image, of its lowest layers up to that one, stands for the whole chain.
//!
//! Nothing here parses an image, asks a registry, or mounts. The program does so for it, in processes of their own
//! ([`Images`]): those are confined, and they outlive this one.

mod api;
mod chains;
mod error;
mod filter;
mod images;
mod labels;
mod manifests;
mod notify;
mod overlay;
mod place;
mod record;
mod remote;
mod snapshotter;
mod store;
mod trees;

pub use api::{Stopped, Stopper, serve};
pub use error::{Error, Result};
pub use images::{Images, LayerFacts, ManifestFacts};
pub use labels::LabelFamily;
pub use notify::tell_ready;
pub use snapshotter::Snapshotter;
