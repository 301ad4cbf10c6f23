//! Building blocks of the tests of forerun.
//!
//! - [`fault`]: sources that fail, are short or are slow at a chosen read;
//! - [`stalled`]: a source of which one part does not arrive until it is released;
//! - [`memfs`]: a filesystem in memory that can produce every kind of extent, including hostile
//!   ones;
//! - [`memvolume`]: a writable volume in memory;
//! - [`conformance`]: the suites that every driver and every source must pass;
//! - [`tree`]: models of a host tree and of an image's tree, and their difference;
//! - [`opened`]: readers over any driver and source;
//! - [`described()`] and [`told`]: the on-disk fields of an image, and the errors of malicious
//!   images, for snapshots;
//! - [`generate`]: seeded trees of files, and [`genromfs()`] to make images from them;
//! - [`trees`]: trees for writers that are made in memory, and outputs that fail;
//! - [`mutate`]: effective changes of bytes, for hostile images;
//! - [`hostile`]: the attacks that filesystem code has fallen for, in images of each format;
//! - [`indexed`]: archives with tables of contents: eStargz and zstd:chunked;
//! - [`everything`]: a tree of every kind of node, content and attribute, for writers;
//! - [`machine_code`]: bytes like the code of some machines, for the filters of XZ;
//! - [`matrix`]: tables of a writer's options; other readers judge each row;
//! - [`sif`]: SIF files, put together object by object;
//! - [`packed`]: the files of a compressed archive that is stored in the repository;
//! - [`require`]: requirements on the machine, which fail in CI if they are missing;
//! - [`readers`]: processes that read past the page cache, and wait;
//! - [`device`]: a device in memory with a log, which fails or panics at chosen requests;
//! - [`powercut`]: every state of a volume that a crash may leave, and what it must show;
//! - [`exfat_judge`]: a checker of exFAT volumes that shares no code with the driver, and
//!   [`exfat_tools`], which runs mkfs.exfat and fsck.exfat;
//! - [`children`]: programs that tests start, without disturbing locks and mounts of other tests;
//! - [`Mounted`] and [`LoopDevice`], which end on drop; [`unmount()`] retries while other programs
//!   keep the mount busy;
//! - [`memory_group`]: control groups with a memory limit, to run programs in;
//! - [`guest`]: a Linux kernel in a virtual machine that mounts images with its own drivers.
//!
//! Servers are in `forerun-testkit-servers`, which the tests of drivers do not build.
//!
//! This crate depends on no driver and no front end, so that all of them can use it in tests. It is
//! for tests only: a helper that cannot continue panics, which fails the test that called it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod children;
pub mod conformance;
mod described;
pub mod device;
pub mod everything;
pub mod exfat_judge;
pub mod exfat_tools;
pub mod fault;
pub mod generate;
pub mod genromfs;
pub mod guest;
pub mod hostile;
pub mod indexed;
pub mod machine_code;
pub mod matrix;
pub mod memfs;
pub mod memory_group;
pub mod memvolume;
mod mounts;
pub mod mutate;
pub mod opened;
pub mod packed;
mod piped;
pub mod powercut;
pub mod readers;
pub mod require;
pub mod rng;
pub mod sif;
pub mod stalled;
mod temp;
pub mod tree;
pub mod trees;
pub mod ztoc;

pub use described::{described, told};
pub use device::{Request, TestDevice};
pub use fault::{CountingSource, FaultSource, Gate};
pub use generate::Shape;
pub use genromfs::genromfs;
pub use memfs::{MemFs, MemFsBuilder, MemImage, Piece};
pub use memvolume::MemVolume;
pub use mounts::{LoopDevice, Mounted, unmount};
pub use piped::piped;
pub use readers::DirectReaders;
pub use stalled::StalledSource;
pub use temp::{
    PROGRAM, TempDir, eventually, forerun_binary, memory, memory_dir, temp_dir, workspace_root,
};
pub use tree::{Keeps, TreeModel};
