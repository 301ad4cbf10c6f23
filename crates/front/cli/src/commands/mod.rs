//! One file per command: its arguments and its implementation.

#[cfg(feature = "measure")]
pub mod bench;
#[cfg(feature = "network")]
pub mod cache;
pub mod cat;
pub mod check;
pub mod completions;
pub mod convert;
pub mod deleted;
#[cfg(feature = "measure")]
pub mod demo;
pub mod diff;
pub mod dump;
pub mod extract;
pub mod gc;
pub mod help;
#[cfg(feature = "network")]
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
#[cfg(feature = "network")]
pub mod pull;
#[cfg(feature = "network")]
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
