//! The mount's side of the runtime: the FUSE protocol over the image.

mod directory;
mod errno;
mod numbers;
mod protocol;
mod server;

pub use server::serve;
