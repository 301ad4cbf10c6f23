//! Power cuts: every state that a crash may leave on a device, and how the states are judged.
//!
//! A workload runs on a [`Recorder`], which stores each write and flush as a [`Trace`]. A device
//! may lose any part of the unflushed writes, so [`crashes`] rebuilds from the trace the possible
//! states after a power failure: for each flush, prefixes and subsets of the writes before it,
//! whole and torn. States are layers over shared bytes ([`Snapshot`]), so one takes microseconds;
//! equal states are visited once. [`log_writes`] reads the traces that a virtual machine records,
//! so that the same code judges the Linux drivers.
//!
//! [`Workload`]s are sequences of operations on a [`FileSystemMut`](forerun_vfs::FileSystemMut),
//! drawn by bounded enumeration. A [`Model`] follows them and computes which trees a crash may
//! show. [`Campaign`] runs many of them on all cores and judges each state. Nothing here knows a
//! format: the test supplies the code to open, check and read a volume.

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
