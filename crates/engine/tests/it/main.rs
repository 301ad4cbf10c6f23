#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod bulk;
mod common;
mod failing;
mod groups;
mod metadata;
mod overtaking;
mod pushing;
mod reading;
mod scattered;
mod side_by_side;
mod volume;
