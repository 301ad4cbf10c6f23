//! The FUSE front end: mounts an opened image on a directory.
//!
//! [`mount`] mounts an image and returns once the mount answers; [`Mount`] waits for its end or
//! unmounts it. [`umount`] unmounts mounts of other processes, dead ones included. [`MountOptions`]
//! has the options of `-o` and `/etc/fstab`. A [`Giver`] hands over a live mount to another
//! process, which calls [`take_over`].
//!
//! This is the only crate that knows the FUSE protocol (through `fuser`, behind an adapter) and
//! errno. It knows no format and moves no file data: the engine does. Images do not change, so the
//! kernel may cache everything, and skips the requests that only matter for files that change:
//! OPEN, RELEASE, FLUSH, and requests for attributes that no node has. [`mount_volume`] is for
//! writable volumes, with a separate adapter.

mod abort;
mod about_to_read;
mod adapter;
mod adapter_mut;
mod apart;
mod attach;
mod attr;
mod backing;
mod bdi;
mod channel;
mod connection;
mod core;
mod counts;
mod cpu_follower;
mod descriptor;
mod directory;
mod errno;
mod error;
mod failures;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guarded;
mod handover;
mod helper;
mod id_map;
mod inode;
mod interrupted;
mod lifeline;
mod listers;
mod listing;
mod liveness;
mod mount;
mod mountpoint;
mod namespace;
mod open;
mod options;
mod outside;
mod page_cache;
mod page_store;
mod pending;
mod place;
mod push;
mod refuse;
mod remount;
mod request_threads;
mod scattered;
mod serve_outside;
mod served;
mod serving;
mod state_table;
mod streams;
mod take_over;
mod tuning;
mod umount;
mod under_way;
mod unmounter;
mod workers;
mod written;

pub use abort::{Abort, Connections};
pub use attach::{Detached, detached};
pub use channel::{Channel, timespec};
pub use counts::{Operation, RequestCounts};
pub use descriptor::is_descriptor;
pub use errno::errno_of;
pub use error::{HandoverError, MountError, UmountError};
pub use handover::{FromServer, FromSupervisor, Giver, Inherited, Kept, Turn};
pub use lifeline::lifeline;
pub use liveness::{Liveness, liveness_of};
pub use mount::{Mount, mount, mount_reader, mount_volume};
pub use namespace::MountNamespace;
pub use options::{MountOptions, OptionError, option_words, parse_size};
pub use outside::Outside;
pub use place::prepare_mountpoint;
pub use remount::remount;
pub use serve_outside::serve_outside;
pub use served::Monitor;
pub use serving::Ending;
pub use state_table::StateFile;
pub use take_over::{take_over, take_over_volume};
pub use umount::{UmountOptions, Unmounted, umount};
pub use unmounter::Unmounter;
pub use workers::Waiting;
pub use written::user_of;

/// Filesystem type of forerun's mounts in `/proc/self/mountinfo`, unless `subtype=` changes it.
pub const FSTYPE: &str = "fuse.forerun";
