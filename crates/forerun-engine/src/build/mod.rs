//! What every writer starts from: a tree of nodes with their contents still where they came from.
//!
//! `scan` makes one from a directory and `tar` from a tar stream; a
//! writer walks it and streams the contents into its output.

mod content;
mod tree;

pub use content::Content;
pub use tree::{BuildError, NewNode, NodeIndex, NodeKind, Tree};
