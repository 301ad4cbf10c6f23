//! On-disk fields of small images, as `info` and `dump` show them.

use std::sync::Arc;

use forerun_erofs::{Erofs, fuzzing};
use forerun_io::MemorySource;
use forerun_testkit::described;
use forerun_vfs::OpenWith;

#[test]
fn every_kind() {
    let source = Arc::new(MemorySource::new(fuzzing::image()));
    let fs = Erofs::open(OpenWith::new(source)).unwrap();
    insta::assert_snapshot!("every_kind", described(&fs));
}
