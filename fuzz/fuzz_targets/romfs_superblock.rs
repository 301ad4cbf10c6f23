//! Any bytes as the start of an image. `crates/forerun-romfs/tests/fuzz_entries.rs` calls the same
//! code over mutated seeds, without a nightly compiler.
#![no_main]

use forerun_fuzz::in_time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| in_time(|| forerun_romfs::fuzzing::superblock(bytes)));
