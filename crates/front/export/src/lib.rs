//! List, extract, tar, diff, dump and check for every format, as loops over the walk.
//!
//! This crate knows no format and prints nothing. Reports contain what failed, and the caller
//! decides what that means.

mod check;
mod content;
mod contents;
mod diff;
mod dump;
mod error;
mod expand;
mod extract;
mod list;
mod progress;
mod salvage;
mod select;
mod survey;
mod tar;

pub use check::{CheckOptions, CheckSummary, Finding, check};
pub use contents::{ContentsReport, write_contents};
pub use diff::{Change, DiffOptions, DiffReport, Difference, Side, diff};
pub use dump::{DumpRecord, dump};
pub use error::ExportError;
pub use expand::expand;
pub use extract::{ExtractOptions, ExtractReport, Failure, Loss, Owners, Shortfall, extract};
pub use forerun_build::{IdMap, Patterns};
pub use list::{ListEntry, Listing, list};
pub use progress::{NoProgress, Progress};
pub use salvage::{Remains, SalvagedFile, write_readable};
pub use select::{Filter, Found, Selected, Selection, visit};
pub use tar::{TarReport, TarWriteOptions, write_tar};
