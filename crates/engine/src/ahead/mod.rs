//! Prediction of the next reads, and the plans that read them ahead.

mod bulk;
mod plan;
mod pool;
mod recent;
mod sink;
mod streams;
mod tree;
mod walk;

pub use bulk::{Bulk, TakenFile, first_place};
pub use plan::{Plan, start};
pub use pool::Pool;
pub use sink::{Pusher, Sink};
pub use streams::Streams;
pub use tree::{TreeAhead, Walk};
pub use walk::WalkAhead;
