//! One file per subcommand: its arguments, and what it does with them.

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
pub mod info;
pub mod label;
pub mod ls;
pub mod man;
pub mod mkfs;
mod owners;
pub mod pack;
pub mod pull;
pub mod push;
pub mod repair;
pub mod restart;
pub mod scan;
mod select;
pub mod status;
pub mod tar;
pub mod trace;
pub mod undo;
