#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod paths_and_walks;
