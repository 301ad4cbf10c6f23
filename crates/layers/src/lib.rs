//! Several filesystems, the layers, shown as one tree, as overlayfs and container runtimes show
//! them.
//!
//! [`Layers`] is a [`FileSystem`](forerun_vfs::FileSystem) over others and names no format. An
//! upper layer adds entries, replaces entries of lower ones, and hides them with whiteouts: files
//! of the OCI specification and character devices of overlayfs. `docs/layers.md` has the rules.
//!
//! Nothing is copied or unpacked. Directories that several layers have are merged when they are
//! listed. All other nodes belong to one layer, whose number is in their id. Data is mapped into
//! the images of the layers, each a blob of the merge.
//!
//! If overlayfs moved a directory or copied up only the metadata of a file, the contents are found
//! in the lower layer. An archive's hard link to a file of a lower layer is shown as that file.

mod check;
mod copies;
mod covered;
mod dirs;
mod driver;
mod find;
mod follow;
mod ids;
mod links;
mod listing;
mod marks;
mod regions;
mod resolve;
mod single;
mod stack;
mod volume;
mod whiteout;

pub use driver::Layers;
pub use ids::{LAYERS_MAX, blob as blob_of_layer};
pub use stack::Layer;
