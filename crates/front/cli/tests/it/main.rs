//! The integration tests of `forerun-cli` as one program, because linking takes longer than most
//! tests.
#![allow(
    clippy::as_conversions,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod archive_kinds;
mod archives;
mod bench;
mod cached_reads;
mod checking;
mod common;
mod comparing;
mod compat;
mod completing;
mod composefs;
mod container_forms;
mod containers;
mod demo;
mod documentation;
mod emulated_root;
mod erofs;
mod exfat;
mod hints;
mod holes;
mod hostile;
mod installing;
mod interrupted;
mod kept_indexes;
mod kernel_mounts;
mod layers;
mod lazy_containers;
mod losses;
mod memory;
mod messages;
mod mistakes;
mod mkfs;
mod mount_command;
mod namespaces;
mod old_squashfs;
mod packing;
mod packing_mistakes;
mod pictures;
mod pipes;
mod reading;
mod remote;
mod remote_credentials;
mod remote_maps;
mod repairing;
mod restart;
mod restart_failures;
mod restarting;
mod resuming;
mod run;
mod run_escapes;
mod run_overlays;
mod salvaging;
mod sandbox;
mod scanning;
mod sharing;
mod sif;
mod snapshotter;
mod starting;
mod status;
mod supervisor;
mod tls;
mod trace_pages;
mod tutorials;
mod unprivileged;
mod valgrind;
mod volumes;
mod waiting;
mod watching;
mod without_ranges;
mod writing;
