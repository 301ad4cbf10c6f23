//! What every writer starts from: a tree of nodes with their contents still where they came from.
//!
//! [`scan`] makes one from a directory and [`read_tar`] from a tar stream; a
//! writer walks it and streams the contents into its output.

mod content;
mod pattern;
mod scan;
mod tar;
mod tree;

pub use content::Content;
pub use pattern::Patterns;
pub use scan::{ScanOptions, scan};
pub use tar::{TarInput, TarOptions, read_tar};
pub use tree::{BuildError, NewNode, NodeIndex, NodeKind, Tree};
