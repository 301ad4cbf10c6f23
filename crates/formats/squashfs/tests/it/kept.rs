//! Images for the tests of the program. The crate of those tests may not depend on a driver, so the
//! images are kept as files. FORERUN_UPDATE=1 writes them again.

use std::fs;

use forerun_squashfs::fuzzing;
use forerun_testkit::workspace_root;
use forerun_vfs::ByteOrder;

use crate::common;
use crate::turned::turned;

fn images() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("1.0", common::old("gzip-1.0-little")),
        ("2.1-big-endian", common::old("gzip-2.1-big")),
        ("3.0-lzma", common::old("lzma_marked_no_length-3.0-qshs")),
        ("3.1", common::old("gzip-3.1-little")),
        (
            "4.0-big-endian",
            turned(&common::sample(), ByteOrder::Little),
        ),
    ]
}

#[test]
fn the_images_of_the_program_can_be_read() {
    let folder = workspace_root().join("crates/front/cli/tests/images");
    for (name, made) in images() {
        let path = folder.join(format!("squashfs-{name}.img"));
        if std::env::var_os("FORERUN_UPDATE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, made).unwrap();
        }
        // Not compared with a new image: another codec version may give other bytes.
        let kept = fs::read(&path).unwrap();
        let errors = fuzzing::walk(&kept);
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}
