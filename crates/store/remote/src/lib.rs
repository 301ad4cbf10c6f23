//! Images in registries, object stores and on web servers, fetched on demand.
//!
//! The only crate that opens sockets; the asynchronous runtime is hidden in here. Its users see a
//! [`ReadAt`](forerun_io::ReadAt).
//!
//! Without the feature `network` it asks no server, and builds no runtime, TLS or HTTP: it has the documents of container
//! images on disk, and types for images at servers that have no values, so that a program that lists both needs one
//! way for them.

// Documents of registries and of disks have one parser, of which a program without a network needs a part.
#![cfg_attr(not(feature = "network"), allow(dead_code))]

#[cfg(feature = "network")]
pub mod answer;
#[cfg(feature = "network")]
mod assemble;
#[cfg(feature = "network")]
mod beside;
#[cfg(feature = "network")]
mod beside_memory;
#[cfg(feature = "network")]
mod beside_parts;
#[cfg(feature = "network")]
pub mod client;
#[cfg(feature = "network")]
mod container;
mod contents;
#[cfg(feature = "network")]
mod credentials;
#[cfg(feature = "network")]
mod download;
mod error;
#[cfg(feature = "network")]
mod facts;
#[cfg(feature = "network")]
mod far_file;
#[cfg(feature = "network")]
mod fetch;
mod hide;
#[cfg(feature = "network")]
mod image;
#[cfg(feature = "network")]
mod image_index;
#[cfg(feature = "network")]
mod image_name;
#[cfg(feature = "network")]
mod inward;
#[cfg(feature = "network")]
mod layer_facts;
#[cfg(feature = "network")]
mod layer_table;
#[cfg(feature = "network")]
mod layout;
#[cfg(feature = "network")]
mod lazy;
#[cfg(feature = "network")]
mod memory;
#[cfg(feature = "network")]
mod metrics;
#[cfg(feature = "network")]
mod open;
mod options;
#[cfg(feature = "network")]
mod origin;
#[cfg(feature = "network")]
mod outage;
mod progress;
#[cfg(feature = "network")]
mod proxies;
#[cfg(feature = "network")]
pub mod pull;
#[cfg(feature = "network")]
pub mod push;
#[cfg(feature = "network")]
mod record;
#[cfg(feature = "network")]
mod redirect;
#[cfg(feature = "network")]
mod reference;
pub mod registry;
#[cfg(feature = "network")]
mod resolve;
#[cfg(feature = "network")]
pub mod runtime;
#[cfg(feature = "network")]
mod scheduler;
#[cfg(feature = "network")]
mod site;
#[cfg(feature = "network")]
mod soci_table;
#[cfg(feature = "network")]
mod spool;
#[cfg(feature = "network")]
mod stats;
mod status;
#[cfg(feature = "network")]
mod table;
#[cfg(feature = "network")]
mod transfer;
#[cfg(feature = "network")]
mod tuning;
#[cfg(feature = "network")]
mod unmeasured;
#[cfg(feature = "network")]
mod whole;
#[cfg(not(feature = "network"))]
mod without_network;

pub use contents::LayerContents;
pub use error::{RemoteError, Result};
pub use hide::{has_password, is_plain, without_secrets};
pub use options::{DownloadReport, Prefetch, Readahead, RemoteOptions};
pub use progress::Progress;
pub use status::RemoteStatus;
#[cfg(not(feature = "network"))]
pub use without_network::{NoReference as Reference, NoRemoteImage as RemoteImage, open};

#[cfg(feature = "network")]
mod exports {
    //! Names of images at servers, and requests for them.

    pub use crate::answer::Body;
    pub use crate::beside::push_beside;
    pub use crate::beside_parts::Beside;
    pub use crate::container::{ContainerLayer, ContainerManifest, container_manifest};
    pub use crate::credentials::CredentialFiles;
    pub use crate::far_file::{FarFile, Link};
    pub use crate::fetch::{ChunkOutcome, Fetcher, Patience};
    pub use crate::hide::place_of;
    pub use crate::image::RemoteImage;
    pub use crate::image_index::{BadIndex, ImageIndex, LayerIndex};
    pub use crate::layout::{Identity, Layout, Part, RemoteBlob, TableLayout};
    pub use crate::metrics::serve_metrics;
    pub use crate::open::{Opened, open, open_all, open_origin};
    pub use crate::origin::{Description, HttpOrigin, Origin, Pinned, S3Origin};
    pub use crate::record::{access_list, access_lists};
    pub use crate::reference::Reference;
    pub use crate::resolve::FromMemory;
    pub use crate::stats::Counters;
    pub use crate::transfer::{pull_to, push_to};
}
#[cfg(feature = "network")]
pub use exports::*;
