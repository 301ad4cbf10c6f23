//! Images in registries, object stores and on web servers, fetched on demand.
//!
//! The only crate that opens sockets; the asynchronous runtime is hidden in here. Its users see a
//! [`ReadAt`](forerun_io::ReadAt).

pub mod answer;
pub mod client;
mod container;
mod contents;
mod credentials;
mod download;
mod error;
mod facts;
mod far_file;
mod fetch;
mod hide;
mod image;
mod image_index;
mod image_name;
mod layer_table;
mod layout;
mod lazy;
mod memory;
mod metrics;
mod open;
mod options;
mod origin;
mod outage;
mod progress;
mod proxies;
pub mod pull;
pub mod push;
mod record;
mod redirect;
mod reference;
pub mod registry;
mod resolve;
pub mod runtime;
mod scheduler;
mod site;
mod spool;
mod stats;
mod table;
mod transfer;
mod tuning;
mod unmeasured;

pub use answer::Body;
pub use container::{ContainerLayer, ContainerManifest, container_manifest};
pub use contents::LayerContents;
pub use credentials::CredentialFiles;
pub use error::{RemoteError, Result};
pub use far_file::{FarFile, Link};
pub use fetch::{ChunkOutcome, Fetcher, Patience};
pub use hide::{has_password, place_of, without_secrets};
pub use image::RemoteImage;
pub use image_index::{BadIndex, ImageIndex, LayerIndex};
pub use layout::{Identity, Layout, Part, RemoteBlob, TableLayout};
pub use metrics::serve_metrics;
pub use open::{Opened, open, open_all, open_origin};
pub use options::{DownloadReport, Prefetch, Readahead, RemoteOptions};
pub use origin::{Description, HttpOrigin, Origin, Pinned, S3Origin};
pub use progress::Progress;
pub use record::{access_list, access_lists};
pub use reference::Reference;
pub use resolve::FromMemory;
pub use stats::{Counters, RemoteStatus};
pub use transfer::{pull_to, push_to};
