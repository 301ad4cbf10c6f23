use forerun_testkit::described;

use crate::common::{archive, everything, open};

#[test]
fn every_kind() {
    insta::assert_snapshot!("every_kind", described(&open(&archive(&everything()))));
}
