#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod common;
mod gzip;
mod hostile;
mod lz4;
mod streams;
