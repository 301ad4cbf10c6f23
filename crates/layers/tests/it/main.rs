//! The merge against a model, the conformance suite, and layers that lie.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod hostile;
mod model;
mod overlay;
mod rules;
