//! What the tests of forerun are made of.
//!
//! - [`fault`]: sources that fail, are short or are slow at a chosen read;
//! - [`memfs`]: a filesystem in memory that can produce every kind of extent, hostile ones included;
//! - [`conformance`]: what every driver and every source must pass;
//! - [`tree`]: models of a host tree and of an image's tree, and their difference;
//! - [`generate`]: seeded trees of files, and [`genromfs()`] to make images of them;
//! - [`everything`]: a tree of every kind of node, content and attribute, for writers to keep;
//! - [`require`]: what a test needs of the machine, failing in CI where it is missing;
//! - [`guest`]: a Linux kernel in a virtual machine that mounts images with its own drivers.
//!
//! It knows no driver, no engine and no front end, so that all of them can test with it. It is for
//! tests only: what cannot go on panics, which fails the test that called it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod conformance;
pub mod everything;
pub mod fault;
pub mod generate;
pub mod genromfs;
pub mod guest;
pub mod memfs;
pub mod require;
pub mod rng;
mod temp;
pub mod tree;

pub use fault::{CountingSource, FaultSource, Gate};
pub use generate::Shape;
pub use genromfs::genromfs;
pub use memfs::{MemFs, MemFsBuilder, MemImage, Piece};
pub use temp::{TempDir, forerun_binary, temp_dir, workspace_root};
pub use tree::{Keeps, TreeModel};
