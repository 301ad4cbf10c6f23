//! Traces, and pictures of work and of images: a mount writes its requests to a file through a [`TraceWriter`],
//! [`TracePicture`] shows what it read, and [`ImageMap`] what an image holds and where.
//!
//! Both collect in bounded memory, whatever the trace or the image says, and both have their figures as JSON. A
//! page is one HTML file of at most 2 MB: it loads nothing, and the script in it draws the same figures that
//! the JSON has. Names come from images, so they are cut, escaped, and never part of the markup.
//!
//! Nothing here reads the contents of a file in an image, or prints. The trace is the only file that is opened.

mod map;
mod page;
mod ranges;
mod text;
mod trace;

pub use map::{FileRuns, ImageMap, Kind, Sums};
pub use page::{LARGEST_PAGE, markup, page as html_page};
pub use trace::{TracePicture, TraceRecord, TraceRow, TraceSummary, TraceWriter};
