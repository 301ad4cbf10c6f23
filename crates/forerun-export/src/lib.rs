//! List, extract, tar, dump and check: loops over the walk, for every format.
//!
//! Nothing here knows a format, prints, or knows errno; what could not be done is in the reports,
//! and the caller decides what that means.

mod check;
mod dump;
mod error;
mod extract;
mod list;
mod progress;
mod select;
mod tar;

pub use check::{CheckOptions, CheckSummary, Finding, check};
pub use dump::{DumpRecord, dump};
pub use error::ExportError;
pub use extract::{ExtractOptions, ExtractReport, Failure, extract};
pub use forerun_engine::build::Patterns;
pub use list::{ListEntry, list};
pub use progress::{NoProgress, Progress};
pub use select::Selection;
pub use tar::{TarReport, TarWriteOptions, write_tar};
