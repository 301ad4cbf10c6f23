//! Opens one file twice, as two processes would.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::{InUse, Kind, Locking, for_reading, for_writing, writer_is_at_work};

fn volume() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    file
}

fn reader(path: &Path) -> File {
    File::open(path).unwrap()
}

fn writer(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn reads(file: &File) -> Result<(), String> {
    let got = for_reading(file, 0..1 << 20);
    got.map(drop).map_err(|error| error.to_string())
}

fn writes(file: &File, locking: Locking) -> Result<(), String> {
    let got = for_writing(file, 0..1 << 20, locking);
    got.map(drop).map_err(|error| error.to_string())
}

#[test]
fn readers_share_and_writers_do_not() {
    let volume = volume();
    let (one, two) = (reader(volume.path()), reader(volume.path()));
    reads(&one).unwrap();
    reads(&two).unwrap();
    let other = writer(volume.path());
    let error = for_writing(&other, 0..1 << 20, Locking::Respect).unwrap_err();
    let in_use = InUse::of(&error).unwrap();
    let [holder] = in_use.holders() else {
        panic!("{error}");
    };
    assert_eq!((holder.kind, holder.pid), (Kind::Read, std::process::id()));
    drop((one, two, other));
    let one = writer(volume.path());
    writes(&one, Locking::Respect).unwrap();
    assert!(writer_is_at_work(&reader(volume.path())));
    for locking in [Locking::Respect, Locking::Break] {
        let refused = writes(&writer(volume.path()), locking).unwrap_err();
        assert!(refused.contains("held for writing by"), "{refused}");
    }
    let refused = reads(&reader(volume.path())).unwrap_err();
    assert!(refused.contains("held for writing by"), "{refused}");
    drop(one);
    assert!(!writer_is_at_work(&reader(volume.path())));
    reads(&reader(volume.path())).unwrap();
}

#[test]
fn a_broken_lock_keeps_other_writers_and_new_readers_away() {
    let volume = volume();
    let held = reader(volume.path());
    held.try_lock().unwrap();
    let one = writer(volume.path());
    writes(&writer(volume.path()), Locking::Respect).unwrap_err();
    writes(&one, Locking::Break).unwrap();
    writes(&writer(volume.path()), Locking::Break).unwrap_err();
    drop(held);
    // The writer does not hold the lock that it broke, but readers still detect the writer.
    reads(&reader(volume.path())).unwrap_err();
    writes(&writer(volume.path()), Locking::Respect).unwrap_err();
    drop(one);
    reads(&reader(volume.path())).unwrap();
}

/// A reader that takes every lock a read-only descriptor can hold does not exclude a writer that
/// breaks locks.
#[test]
fn no_lock_of_a_reader_keeps_a_writer_away_that_breaks_it() {
    let volume = volume();
    let held = reader(volume.path());
    held.try_lock().unwrap();
    let all = libc::flock {
        l_type: libc::F_RDLCK.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&held, FcntlArg::F_OFD_SETLK(&all)).unwrap();
    let one = writer(volume.path());
    writes(&writer(volume.path()), Locking::Respect).unwrap_err();
    writes(&one, Locking::Break).unwrap();
    drop(held);
    writes(&writer(volume.path()), Locking::Respect).unwrap_err();
    reads(&reader(volume.path())).unwrap_err();
    drop(one);
    writes(&writer(volume.path()), Locking::Respect).unwrap();
}
