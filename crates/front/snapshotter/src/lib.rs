//! A proxy snapshotter for containerd (docs/containerd.md).
//!
//! containerd requests snapshots over gRPC: it prepares one, unpacks a layer into it or lets a
//! container write to it, and commits or removes it. This crate stores their records, answers with
//! overlayfs mounts, and decides which layers need no unpacking. If an image has tables of
//! contents, its layers become snapshots without files. One mount of the image's lowest layers then
//! stands for the whole chain.
//!
//! This crate parses no image, contacts no registry and mounts nothing. The program does that in
//! separate processes ([`Images`]), which are sandboxed and outlive this one.

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
