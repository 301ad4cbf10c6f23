//! Helpers that open archives and read their members.

use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::{Limits, MemorySource, ReadAt};
use forerun_testkit::TreeModel;
use forerun_testkit::conformance::check_filesystem;
use forerun_vfs::{FileSystem, FollowLast, MakeSpool, NodeId, OpenWith, Result, resolve};
use forerun_zip::Zip;

pub fn source(bytes: &[u8]) -> Arc<dyn ReadAt> {
    Arc::new(MemorySource::new(bytes))
}

pub fn open(bytes: &[u8]) -> Zip {
    let zip = Zip::open(source(bytes), &Limits::default()).unwrap();
    check_filesystem(&zip, &Limits::default());
    zip
}

/// Opens an archive in which members may be unreadable.
pub fn open_damaged(bytes: &[u8]) -> Zip {
    Zip::open(source(bytes), &Limits::default()).unwrap()
}

pub fn refused(bytes: &[u8]) -> String {
    let opened = Zip::open(source(bytes), &Limits::default());
    opened.map(|_| ()).unwrap_err().to_string()
}

pub fn node(zip: &Zip, path: &str) -> NodeId {
    let limits = Limits::default();
    resolve(zip, path.as_bytes(), FollowLast::No, &limits).unwrap()
}

pub fn tree(zip: &Zip, bytes: &[u8]) -> Result<TreeModel> {
    TreeModel::of_image(zip, &*source(bytes))
}

/// Returns the warnings of an archive, without their offsets.
pub fn warnings(zip: &Zip) -> Vec<String> {
    let warnings = &zip.volume().warnings;
    let place = |text: &str| text.rfind(" (at ").unwrap_or(text.len());
    warnings
        .iter()
        .map(|text| text[..place(text)].to_string())
        .collect()
}

/// Returns the problems that the checks of the archive and of each member report.
pub fn problems(zip: &Zip) -> Vec<String> {
    let mut found = Vec::new();
    let mut report = |problem: forerun_vfs::Problem| found.push(problem.error.to_string());
    zip.check(None, &mut report).unwrap();
    for entry in forerun_vfs::Walk::new(zip, zip.root(), &Limits::default()) {
        zip.check(Some(entry.unwrap().node), &mut report).unwrap();
    }
    found
}

/// Opens an archive with blocks of at most 64 KiB. Temporary files are allowed if `spool` is set.
pub fn open_small_blocks(bytes: &[u8], spool: bool) -> Zip {
    struct Temporary;

    impl MakeSpool for Temporary {
        fn make(&self) -> io::Result<File> {
            tempfile::tempfile()
        }
    }

    let mut with = OpenWith::new(source(bytes));
    with.limits.block_len = 64 << 10;
    with.archive.spool = spool.then(|| -> Arc<dyn MakeSpool> { Arc::new(Temporary) });
    Zip::open_with(&with).unwrap()
}
