#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod codecs;
mod fill;
mod prefixes;
