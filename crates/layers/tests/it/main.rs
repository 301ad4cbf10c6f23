#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod hostile;
mod model;
mod overlay;
mod rules;
