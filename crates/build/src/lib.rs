//! The start of every writer: a tree of nodes whose contents stay at their source.
//!
//! [`scan`] makes one from a directory; [`apply_manifest`] makes or changes one by a list of entries. The library makes
//! one from an image of any format, and so from an archive. [`Owners`], [`Times`]
//! and [`XattrFilter`] then change all nodes alike. A writer walks the tree ([`WalkedTree`]) and streams the
//! contents into its output ([`fetch_files`]).

mod acl;
mod content;
mod exact;
mod fetch;
mod host;
mod kept;
mod line;
mod manifest;
mod memory;
mod order;
mod output;
mod owners;
mod parallel;
mod pattern;
mod priorities;
mod run_hasher;
mod scan;
mod sparse;
mod stream;
mod time;
mod times;
mod tree;
mod vanished;
mod walked;
mod whiteouts;
mod xattr_filter;

pub use content::{Content, ContentSource, is_zero};
pub use exact::{ExactStream, Unreadable, read_whole};
pub use fetch::{ContentHash, RepeatedLens, WHOLE, fetch_files, read_small};
pub use host::HostFile;
pub use kept::{KeptProperties, LossKind, NotKept, not_kept};
pub use line::LineError;
pub use manifest::{
    PseudoDefinitions, PseudoRules, apply_manifest, group_id, parse_xattr, user_id,
};
pub use memory::{WriterNeeds, is_in_memory, spool_dir, spool_file, warn_of_large_tree};
pub use order::Order;
pub use output::{Complete, ImageOutput, ImageWriter};
pub use owners::{IdMap, Owners, shift_owners};
pub use parallel::{Jobs, ParallelBounds, ParallelError, parallel_map};
pub use pattern::Patterns;
pub use priorities::Priorities;
pub use run_hasher::RunHasher;
pub use scan::{NamedSource, OtherFilesystems, ScanOptions, scan, scan_readable, scan_sources};
pub use stream::ContentStream;
pub use time::parse_time;
pub use times::Times;
pub use tree::{BuildError, NewNode, NodeIndex, NodeKind, Tree};
pub use vanished::drop_unreadable;
pub use walked::{WalkedDir, WalkedFile, WalkedNode, WalkedNodes, WalkedTree};
pub use whiteouts::{overlay_whiteouts, strip_whiteouts};
pub use xattr_filter::XattrFilter;
