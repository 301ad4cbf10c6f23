//! A full disk: chunks that fit are stored correctly, others are refused, and nothing else breaks.

use std::io;
use std::path::Path;
use std::process::Command;

use forerun_cache::CacheError;
use forerun_testkit::{children, require, temp_dir};

use crate::common::{CHUNK_LEN, compare, image, quiet, slice, spec};

/// A mounted filesystem of 1 MiB.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        let options = ["-t", "tmpfs", "-o", "size=1m,mode=700", "none"];
        let mounted = children::output(Command::new("mount").args(options).arg(at));
        let mounted = mounted.is_ok_and(|output| output.status.success());
        require::that(mounted, "leave to mount a tmpfs").then_some(Self(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _best_effort = children::output(Command::new("umount").arg("-l").arg(self.0));
    }
}

#[test]
fn a_full_disk_keeps_what_fits() {
    if !require::root() {
        return;
    }
    let dir = temp_dir("cache");
    let Some(_small) = Small::mount(dir.path()) else {
        return;
    };
    let _locks_count = children::forbid();
    let bytes = image(1, 400 * CHUNK_LEN);
    let old = image(2, 50 * CHUNK_LEN);
    for with_table in [true, false] {
        let cache = quiet(dir.path());
        let unused = cache.blob(spec(&old, with_table)).unwrap();
        unused.store(0, &old).unwrap();
        drop(unused);
        let blob = cache.blob(spec(&bytes, with_table)).unwrap();
        let store = |run: std::ops::Range<u64>| {
            let place = blob.geometry().bytes_of(&run);
            blob.store(run.start, &bytes[slice(&place)])
        };
        let mut refused = 0;
        for start in (0..400).step_by(4) {
            if let Err(error) = store(start..start + 4) {
                assert!(matches!(error, CacheError::Io { .. }), "{error}");
                assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
                refused += 1;
            }
        }
        assert!(refused > 0, "1.6 MB fit into 1 MiB");
        let kept = compare(&blob, &bytes);
        assert!(!kept.is_empty());
        // The state file may not fit; served chunks are right in both cases.
        let _full = blob.flush();
        let again = quiet(dir.path()).blob(spec(&bytes, with_table)).unwrap();
        assert_eq!(compare(&again, &bytes), kept);
        drop(again);
        // Once there is space, storing works again.
        assert_eq!(cache.shrink_to(0).unwrap().removed, 1);
        let missing = blob.missing(0..400).unwrap();
        store(missing[0].start..missing[0].start + 4).unwrap();
        blob.flush().unwrap();
        assert!(compare(&blob, &bytes).len() > kept.len());
        drop(blob);
        assert_eq!(cache.shrink_to(0).unwrap().left_bytes, 0);
    }
}
