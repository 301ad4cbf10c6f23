//! The interface between filesystem drivers and the engine, and the algorithms that need nothing
//! else.
//!
//! Drivers *map*: [`FileSystem::map`] says where the bytes of a file are and moves none. The engine
//! moves bytes and knows no format. This crate holds the trait between them, its types
//! ([`Metadata`], [`Extent`], [`Error`]), the rules of names, path resolution, and the walk.
//!
//! Nothing here knows a format, a front end or errno.

mod acl;
mod blob;
mod byte_order;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod exercise;
mod extent;
mod filesystem;
mod filesystem_mut;
mod format;
mod held;
mod kept;
mod listed;
mod measure;
mod metadata;
mod metadata_layout;
mod name;
mod node;
pub mod objects;
mod on_disk;
mod overlay;
mod passed_over;
mod path;
mod region;
pub mod repair;
mod volume_info;
mod walk;
mod zone;

pub use acl::{ACL_ACCESS, ACL_DEFAULT, AclError, PosixAcl, is_acl};
pub use blob::{BlobName, NoBlobs, ResolveBlob, Verity};
pub use byte_order::ByteOrder;
pub use error::{Bound, Corrupt, Error, Result, is_for_want_of_room};
pub use extent::{DecodedLen, EncodedBlock, Extent, Padding, Place};
pub use filesystem::{
    Blobs, Capabilities, DirCursor, DirEntry, FatAttributes, FileSum, FileSystem, History,
    Inferred, Layered, Layout, Merged, Objects, Problem, Verifier,
};
pub use filesystem_mut::{Changes, FileSystemMut, NewNode, Space, Usage};
pub use forerun_codec::Codec;
pub use forerun_io::{BlobId, Limits};
pub use format::{
    Format, OpenArchive, OpenBlobs, OpenFormat, OpenMut, OpenMutWith, OpenWith, Ownership,
    ProvenTable, TablePlace, TailProbe,
};
pub use held::Held;
pub use kept::{KeepIndex, MakeSpool};
pub use listed::{Listed, ListedBuilder, ListedPlace, ListedTree, PathRefused};
pub use measure::{ArchiveSearch, Follow, MEASURE_LEN, Magic, Measure, Measured, read_head};
pub use metadata::{Device, FileType, Metadata, Timestamp};
pub use metadata_layout::MetadataLayout;
pub use name::{NameError, check_name, check_xattr_name};
pub use node::NodeId;
pub use overlay::{ContentsBelow, OverlayAttribute, OwnContents};
pub use passed_over::PassedOver;
pub use path::{FollowLast, canonicalize, resolve};
pub use region::{Region, RegionKind};
pub use volume_info::VolumeInfo;
pub use walk::{Walk, WalkEntry, WalkError};
pub use zone::Zone;
