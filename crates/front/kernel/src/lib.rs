//! Mounts images with the kernel's own drivers, for privileged users. Prefetches the image's
//! metadata first; no process stays behind.
//!
//! [`mount`](fn@mount) mounts EROFS images directly from the file (Linux 6.12), otherwise through a
//! loop device. SquashFS and romfs always use a loop device. composefs is an EROFS mount below an
//! overlayfs, with the object store as a data-only layer. The new mount API makes a mount visible
//! only once it is complete; a failed mount leaves nothing behind. [`umount`](fn@umount) unmounts.
//!
//! This crate parses no image and knows formats only by the names of the kernel's drivers. Kernel
//! drivers trust images more than forerun's do: mount untrusted images through FUSE instead.

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
pub use options::{Options, Route, Upper};
pub use umount::{take_down, umount};
