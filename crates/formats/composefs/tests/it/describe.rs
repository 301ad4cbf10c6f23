//! The on-disk fields of small images, as `info` and `dump` show them.

use std::sync::Arc;

use forerun_composefs::{Composefs, fuzzing};
use forerun_io::MemorySource;
use forerun_testkit::described;
use forerun_vfs::OpenWith;

fn dump(seed: &str) -> String {
    let mut seeds = fuzzing::seeds().unwrap().into_iter();
    let (_, image) = seeds.find(|(name, _)| *name == seed).unwrap();
    let with = OpenWith::new(Arc::new(MemorySource::new(image)));
    described(&Composefs::open(with).unwrap())
}

#[test]
fn every_kind_in_version_0() {
    insta::assert_snapshot!("version_0", dump("version 0"));
}

#[test]
fn every_kind_in_version_1() {
    insta::assert_snapshot!("version_1", dump("version 1"));
}
