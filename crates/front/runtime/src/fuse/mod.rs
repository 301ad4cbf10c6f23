//! The runtime's FUSE server.

mod directory;
mod errno;
mod numbers;
mod protocol;
mod server;

pub use server::serve;
