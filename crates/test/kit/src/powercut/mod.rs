//! Power cuts: every state that a crash may leave on a device, and how the states are judged.
//!
//! A workload runs on a [`Recorder`], which keeps each write and flush as a [`Trace`]. A device may
//! lose any part of what was not flushed, so [`crashes`] rebuilds from the trace what it may hold
//! after the power failed: for each flush, prefixes and subsets of the writes before it, whole and
//! torn. States are layers over shared bytes ([`Snapshot`]), so that one costs microseconds; equal
//! ones come once. [`log_writes`] reads the traces that a virtual machine records, so that the Linux
//! drivers are judged by the same code.
//!
//! [`Workload`]s are sequences of operations on a [`FileSystemMut`](forerun_vfs::FileSystemMut),
//! drawn by bounded enumeration; a [`Model`] follows them and says which trees a crash may show.
//! [`Campaign`] runs many of them on all cores and has each state judged. Nothing here knows a
//! format: how to open, check and read a volume is the test's to say.

mod campaign;
mod enumerate;
mod expect;
pub mod log_writes;
mod model;
mod operation;
mod recorder;
mod run;
mod snapshot;
mod tree;
mod workload;

pub use campaign::{Campaign, Check, Moment, Outcome, Subject};
pub use enumerate::{Bounds, Crash, crashes};
pub use model::Model;
pub use operation::{Operation, Place};
pub use recorder::{Event, Recorder, Trace};
pub use run::run;
pub use snapshot::{CowDevice, SECTOR, Sector, Snapshot};
pub use tree::{Found, FoundNode};
pub use workload::{Open, Scene, Setting, Workload, long_name};
