//! The on-disk fields of a small image, as `info` and `dump` show them.

use forerun_io::Limits;
use forerun_romfs::{Romfs, fuzzing};
use forerun_testkit::described;

use crate::common::source;

fn seed(wanted: &str) -> Vec<u8> {
    let mut seeds = fuzzing::seeds().unwrap().into_iter();
    seeds.find(|(name, _)| *name == wanted).unwrap().1
}

fn dump(image: Vec<u8>) -> String {
    described(&Romfs::open(source(image), &Limits::default()).unwrap())
}

#[test]
fn every_kind() {
    insta::assert_snapshot!("every_kind", dump(seed("everything")));
}

#[test]
fn a_wrong_checksum() {
    let mut image = seed("empty");
    image[0x2F] ^= 1;
    insta::assert_snapshot!("a_wrong_checksum", dump(fuzzing::with_checksum(&image)));
}
