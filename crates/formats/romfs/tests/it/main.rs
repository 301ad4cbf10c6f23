#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod bounds;
mod common;
mod describe;
mod differential;
mod genromfs;
mod hostile;
mod writer;
