//! Prediction: what will be read next, and the plans that read it before it is asked for.

mod bulk;
mod plan;
mod pool;
mod recent;
mod streams;
mod tree;
mod walk;

pub use bulk::{Bulk, Taken, first_place};
pub use plan::{Plan, start};
pub use pool::Pool;
pub use streams::Streams;
pub use tree::TreeAhead;
pub use walk::WalkAhead;
