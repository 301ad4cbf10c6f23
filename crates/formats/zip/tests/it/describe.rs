//! The fields of small archives, as `info` and `dump` show them.

use forerun_testkit::described;
use forerun_zip::fuzzing;

use crate::common::open_damaged;

fn dump(seed: &str) -> String {
    let seeds = fuzzing::seeds();
    let (_, archive) = seeds.iter().find(|(name, _)| *name == seed).unwrap();
    described(&open_damaged(archive))
}

#[test]
fn every_kind_of_member() {
    insta::assert_snapshot!("everything", dump("everything"));
}

#[test]
fn extra_fields_and_other_systems() {
    insta::assert_snapshot!("fields", dump("fields"));
}

#[test]
fn sizes_of_64_bits() {
    insta::assert_snapshot!("zip64", dump("zip64"));
}
