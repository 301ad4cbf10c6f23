//! A cache of remote images: chunks on disk, each verified once, shared by processes and images,
//! safe against crashes.
//!
//! A [`Cache`] is a directory. Every image in it is a [`CachedBlob`]: a sparse file of its bytes,
//! and the state of its chunks. Chunks are verified against a [`VerifiedTable`], the Merkle tree of
//! fs-verity over the image. An image without a table is verified as a whole when it is complete.
//!
//! [`layout`](mod@layout) describes the files and the locks that guard them; `claims.rs`, how
//! processes share the work; `state.rs`, how the cache survives power cuts.
//!
//! Nothing here opens a socket: `forerun-remote` fetches. Nothing here is asynchronous either:
//! calls block for as long as the local disk takes, unless they take a time limit.

mod access;
mod adopt;
mod bitmap;
mod blob;
mod cache;
mod check;
mod checking;
mod claim;
mod claims;
mod cores;
mod digest;
mod error;
mod evict;
mod flusher;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod geometry;
mod hashed;
mod holder;
mod index;
mod indexes;
mod info;
pub mod layout;
mod limit;
mod list;
mod lock;
mod names;
mod opening;
mod options;
mod presence;
mod records;
mod runs;
mod shared;
mod state;
mod store;
mod table;
mod trust;

pub use access::{AccessList, AccessRecorder};
pub use blob::{CachedBlob, ReadData, Waited};
pub use cache::{BlobSpec, Cache};
pub use check::CheckReport;
pub use claim::Claim;
pub use digest::{Digest, NoDigest};
pub use error::{CacheError, Result};
pub use evict::GcReport;
pub use geometry::{BadGeometry, DEFAULT_CHUNK, Geometry, MAX_CHUNK, MAX_CHUNKS, MIN_CHUNK};
pub use indexes::IndexSlot;
pub use list::{Entry, Verified};
pub use names::Recalled;
pub use options::CacheOptions;
pub use table::{ChunkTable, TableBuilder, VerifiedTable};
pub use trust::TableTrust;
