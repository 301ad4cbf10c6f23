//! Mounts by the kernel's own drivers, for users with the privilege: the image's metadata is read ahead,
//! then the kernel takes over, and no process stays.
//!
//! [`mount`](fn@mount) has EROFS images mounted from the file itself where the kernel does that
//! (Linux 6.12), else through a loop device; SquashFS and romfs images always through a loop device;
//! composefs images as EROFS under an overlayfs with the object store as a layer of data only. All
//! of it uses the new mount API, so that only the finished mount is ever seen, and a failure leaves
//! nothing behind. [`umount`](fn@umount) takes such mounts down.
//!
//! This crate parses no image, and knows formats only by the names of the kernel's drivers. These trust
//! images more than ours do: untrusted images are better mounted through FUSE.

mod context;
mod direct;
mod drivers;
mod error;
mod kernel_log;
mod mark;
mod mount;
mod named;
mod options;
mod overlay;
mod prefetch;
mod readahead;
mod umount;
mod verity;

pub use error::{Error, Refusal};
pub use mark::{image_of, is_ours};
pub use mount::{Mounted, Way, mount};
pub use options::{Options, Route};
pub use umount::{take_down, umount};
