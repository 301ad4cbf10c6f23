//! Filesystem images opened from userspace: the library.
//!
//! [`Image::open`] finds the format by content, puts source, cache, driver and engine together, and
//! gives back the one thing a front end needs: a [`Reader`]. A [`Writer`] makes an image from a
//! [`build::Tree`]. Both sets of formats are closed and listed in one file of this crate.

mod image;
mod registry;

pub use forerun_engine::build;
pub use forerun_engine::{Bulk, Data, EngineOptions, Reader};
pub use forerun_io::{
    Counter, Event, EventKind, EventLog, EventSink, FileSource, IoStats, Limits, MemorySource,
    Observer, Purpose, ReadAt, StatsSnapshot, Window,
};
pub use forerun_romfs::RomfsOptions;
pub use forerun_vfs as vfs;
pub use forerun_vfs::{Error, FileSystem, Format, NodeId, Result};
pub use image::{Image, OpenOptions};
pub use registry::{Writer, formats};
