//! Prediction of the next reads, and the plans that read them ahead.

mod plan;
mod streams;
mod tree;
mod walk;

pub use plan::{Plan, start};
pub use streams::Streams;
pub use tree::{TreeAhead, Walk};
pub use walk::WalkAhead;
