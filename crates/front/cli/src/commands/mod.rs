//! One file per subcommand: its arguments, and what it does with them.

pub mod bench;
pub mod cache;
pub mod cat;
pub mod check;
pub mod completions;
pub mod convert;
pub mod demo;
pub mod diff;
pub mod dump;
pub mod extract;
pub mod gc;
pub mod help;
pub mod index;
pub mod info;
pub mod label;
pub mod ls;
pub mod man;
pub mod map;
pub mod mkfs;
mod owners;
pub mod pack;
mod picture;
pub mod pull;
pub mod push;
pub mod repair;
pub mod restart;
mod salvage;
pub mod scan;
mod select;
#[cfg(feature = "snapshotter")]
pub mod snapshotter;
pub mod status;
pub mod tar;
pub mod trace;
pub mod undo;
mod watch;
