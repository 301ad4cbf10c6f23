//! On-disk fields of small images, as `info` and `dump` show them.

use forerun_squashfs::fuzzing;
use forerun_testkit::described;

use crate::common;

#[test]
fn every_kind() {
    let mut seeds = fuzzing::seeds().unwrap().into_iter();
    // This seed does not depend on choices of a compressor.
    let (_, image) = seeds.find(|(name, _)| *name == "parts").unwrap();
    insta::assert_snapshot!("every_kind", described(&common::open(image).unwrap()));
}
