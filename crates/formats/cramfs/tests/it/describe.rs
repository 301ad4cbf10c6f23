//! The on-disk fields of small images, as `info` and `dump` show them.

use forerun_cramfs::fuzzing;
use forerun_testkit::described;

use crate::common::open;

fn dump(seed: &str) -> String {
    let seeds = fuzzing::seeds();
    let (_, image) = seeds.iter().find(|(name, _)| *name == seed).unwrap();
    described(&open(image))
}

#[test]
fn every_kind() {
    insta::assert_snapshot!("every_kind", dump("everything"));
}

#[test]
fn flags_in_pointers_and_the_other_byte_order() {
    insta::assert_snapshot!("extended", dump("extended"));
}

#[test]
fn no_version_2() {
    insta::assert_snapshot!("version1", dump("version1"));
}
