//! Pictures of work and of images: [`TracePicture`] shows what a mount read, and [`ImageMap`] what an image
//! holds and where.
//!
//! Both collect in bounded memory, whatever the trace or the image says, and both have their figures as JSON. A
//! page is one HTML file of at most 2 MB: it loads nothing, and the script in it draws the same figures that
//! the JSON has. Names come from images, so they are cut, escaped, and never part of the markup.
//!
//! Nothing here reads the contents of a file, prints, or opens a file.

mod map;
mod page;
mod text;
mod trace;

pub use map::{FileRuns, ImageMap, Kind, Sums};
pub use page::LARGEST_PAGE;
pub use trace::TracePicture;
