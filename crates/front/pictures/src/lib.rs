//! Records traces, and draws traces and images. A mount writes its requests to a file through a
//! [`TraceWriter`]; [`TracePicture`] shows what it read, and [`ImageMap`] what an image contains
//! and where.
//!
//! Both use bounded memory for any trace or image, and return their figures as JSON. A page is one
//! HTML file of at most 2 MB that loads nothing; its script draws the same figures as the JSON.
//! Names come from images, so they are truncated, escaped, and never interpreted as markup.
//!
//! This crate reads no file contents from images and prints nothing. It opens no file but the
//! trace.

mod map;
mod page;
mod ranges;
mod text;
mod trace;

pub use map::{FileRuns, ImageMap, Kind, Sums};
pub use page::{LARGEST_PAGE, markup, page as html_page};
pub use trace::{TracePicture, TraceRecord, TraceRow, TraceSummary, TraceWriter};
