//! Names that differ only in case.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forerun_fuse::Operation;
use forerun_testkit::eventually;
use forerun_testkit::rng::Rng;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::common::exfat::Volume;
use crate::common::refused;

/// Commands that may use the names `old` and `new` before the rename.
const BEFORE: [&str; 8] = [
    ":",
    "ls mnt",
    "ls -l mnt",
    "stat mnt/$new",
    "ls -R mnt/$new mnt/$other",
    "stat mnt/$old mnt/$new mnt/$other",
    "test -d mnt/$new || cat mnt/$new",
    "test -d mnt/$new || { cat mnt/$new; echo b >> mnt/$other; }",
];

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Renames `name` back and forth between three spellings with `command`, after each command in
/// `BEFORE`.
fn rename_with(name: &str, command: &str) {
    let Some(volume) = Volume::new(name, 16, &[]) else {
        return;
    };
    for fresh in [false, true] {
        let mut mount = volume.mount("rw");
        volume.shell("rm -rf mnt/*; echo a > mnt/photo.JPG; mkdir mnt/Empty mnt/Full mnt/Full/sub");
        volume.shell("echo c > mnt/Full/c");
        for (old, new, other) in [
            ("photo.JPG", "photo.jpg", "PHOTO.JPG"),
            ("photo.jpg", "Photo.jpg", "photo.JPG"),
            ("Empty", "empty", "EMPTY"),
            ("empty", "EMPTY", "Empty"),
            ("Full", "full", "FULL"),
        ] {
            let mut spellings = (old, new);
            for before in BEFORE {
                if fresh {
                    volume.done(mount);
                    mount = volume.mount("rw");
                }
                let (old, new) = spellings;
                volume.shell(&format!("old={old} new={new} other={other}; {before}"));
                volume.shell(&format!("old={old} new={new}; {command}"));
                let listed = names(&volume.path(""));
                assert!(listed.contains(&new.to_string()), "{before}: {listed:?}");
                assert_eq!(listed.len(), 3, "{before}: {listed:?}");
                spellings = (new, old);
            }
            let (old, new) = spellings;
            volume.shell(&format!("mv mnt/{old} mnt/x && mv mnt/x mnt/{new}"));
        }
        volume.done(mount);
        let mount = volume.mount("rw");
        assert_eq!(names(&volume.path("")), ["EMPTY", "Photo.jpg", "full"]);
        assert_eq!(names(&volume.path("full")), ["c", "sub"]);
        assert!(
            fs::read(volume.path("photo.jpg"))
                .unwrap()
                .starts_with(b"a\n")
        );
        volume.done(mount);
    }
}

#[test]
fn mv_that_changes_only_case_renames() {
    rename_with("exfat_case_mv", "mv mnt/$old mnt/$new");
}

#[test]
fn mv_in_the_working_directory_that_changes_only_case_renames() {
    rename_with("exfat_case_cwd", "cd mnt; mv $old $new");
}

type Step<'a> = &'a dyn Fn(&Path, &Path);

/// Uses a single thread for everything, like a file manager.
#[test]
fn a_rename_that_changes_only_case_renames_whatever_the_thread_did_before() {
    let Some(volume) = Volume::new("exfat_case_thread", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    fs::write(volume.path("photo.JPG"), b"a").unwrap();
    fs::create_dir(volume.path("Dir")).unwrap();
    fs::write(volume.path("Dir/inside"), b"b").unwrap();
    let befores: [Step; 5] = [
        &|_, _| {},
        &|_, new| {
            fs::metadata(new).unwrap();
        },
        &|old, new| {
            fs::metadata(new).unwrap();
            fs::metadata(old).unwrap();
        },
        &|_, new| drop(File::open(new).unwrap()),
        &|_, new| drop(names(new.parent().unwrap())),
    ];
    for flags in [RenameFlags::empty(), RenameFlags::NOREPLACE] {
        for (old, new) in [
            ("photo.JPG", "photo.jpg"),
            ("Dir", "DIR"),
            ("DIR/inside", "DIR/Inside"),
        ] {
            for (n, before) in befores.iter().enumerate() {
                for (old, new) in [(old, new), (new, old)] {
                    let (from, to) = (volume.path(old), volume.path(new));
                    before(&from, &to);
                    renameat_with(CWD, &from, CWD, &to, flags).unwrap();
                    let name = to.file_name().unwrap().to_str().unwrap().to_string();
                    assert!(
                        names(to.parent().unwrap()).contains(&name),
                        "{n}: {name} {flags:?}"
                    );
                }
            }
            fs::rename(volume.path(old), volume.path(new)).unwrap();
        }
        fs::rename(volume.path("DIR"), volume.path("Dir")).unwrap();
        fs::rename(volume.path("photo.jpg"), volume.path("photo.JPG")).unwrap();
        fs::rename(volume.path("Dir/Inside"), volume.path("Dir/inside")).unwrap();
    }
    volume.done(mount);
}

#[test]
fn an_open_file_is_read_and_written_across_a_rename_of_its_case() {
    let Some(volume) = Volume::new("exfat_case_open", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    fs::write(volume.path("photo.JPG"), b"one ").unwrap();
    let mut first = File::options()
        .append(true)
        .read(true)
        .open(volume.path("photo.JPG"))
        .unwrap();
    let mut other = File::options()
        .append(true)
        .open(volume.path("PHOTO.jpg"))
        .unwrap();
    let named = fs::read_link(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&other)
    ));
    fs::metadata(volume.path("PHOTO.jpg")).unwrap();
    assert_eq!(
        named.unwrap(),
        volume.path("PHOTO.jpg"),
        "not shown as deleted"
    );
    volume.shell("mv mnt/photo.JPG mnt/photo.jpg");
    assert_eq!(names(&volume.path("")), ["photo.jpg"]);
    volume.shell("mv mnt/photo.jpg mnt/PHOTO.jpg; mv mnt/PHOTO.jpg mnt/photo.jpg");
    assert_eq!(names(&volume.path("")), ["photo.jpg"]);
    other.write_all(b"two ").unwrap();
    first.write_all(b"three").unwrap();
    let mut text = String::new();
    first.rewind().unwrap();
    first.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two three");
    assert_eq!(first.metadata().unwrap().nlink(), 1);
    drop((first, other));
    volume.done(mount);
    let mount = volume.mount("rw");
    assert_eq!(
        fs::read(volume.path("photo.jpg")).unwrap(),
        b"one two three"
    );
    volume.done(mount);
}

#[test]
fn all_spellings_are_one_file() {
    let Some(volume) = Volume::new("exfat_case_one", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    volume.shell("echo data > mnt/photo.JPG; mkdir mnt/Dir; touch mnt/Dir/a");
    // cp must not truncate the only copy.
    volume.shell("! cp mnt/photo.JPG mnt/photo.jpg 2> message; grep -q 'same file' message");
    volume.shell(
        "grep -q data mnt/photo.JPG; echo more >> mnt/PHOTO.jpg; grep -q more mnt/photo.jpg",
    );
    volume.shell("test $(stat -c %i mnt/photo.JPG) = $(stat -c %i mnt/photo.jpg)");
    let (old, new) = (volume.path("photo.JPG"), volume.path("photo.jpg"));
    let exchanged = renameat_with(CWD, &old, CWD, &new, RenameFlags::EXCHANGE);
    assert_eq!(exchanged, Err(Errno::NOENT));
    assert_eq!(names(&volume.path("")), ["Dir", "photo.JPG"]);
    // The kernel must detect that a directory would move into itself.
    for target in ["dir/sub", "Dir/sub", "DIR/a/../sub"] {
        let moved = fs::rename(volume.path("Dir"), volume.path(target));
        assert!(moved.is_err(), "{target}");
    }
    refused(
        fs::rename(volume.path("dir"), volume.path("DIR/sub")),
        Errno::INVAL,
    );
    // Several spellings of a directory in one call.
    fs::rename(volume.path("dir/A"), volume.path("DIR/b")).unwrap();
    fs::rename(volume.path("DIR/B"), volume.path("Dir/c")).unwrap();
    assert_eq!(names(&volume.path("dIR")), ["c"]);
    // Replace another file by a different spelling of its name.
    volume.shell("echo over > mnt/dir/PHOTO.JPG; mv -f mnt/Dir/photo.jpg mnt/photo.jpg");
    assert_eq!(fs::read(volume.path("photo.JPG")).unwrap(), b"over\n");
    assert_eq!(names(&volume.path("")), ["Dir", "photo.jpg"]);
    // A file removed under one spelling is gone under all.
    volume.shell("rm mnt/PHOTO.jpg mnt/dir/C; rmdir mnt/dir");
    eventually("the first names are gone too", || {
        ["photo.jpg", "photo.JPG", "Dir", "dir"]
            .iter()
            .all(|name| fs::metadata(volume.path(name)).is_err())
    });
    volume.done(mount);
}

fn respelled(name: &str, rng: &mut Rng) -> String {
    let change = |c: char| match rng.below(2) {
        0 => c.to_ascii_uppercase(),
        _ => c.to_ascii_lowercase(),
    };
    name.chars().map(change).collect()
}

/// Checks that programs never see the ESTALE that makes the kernel restart a call.
#[test]
fn random_spellings_are_found_by_many_threads() {
    let Some(volume) = Volume::new("exfat_case_random", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    volume.shell("mkdir -p mnt/Some/Path/Below; echo text > mnt/Some/Path/Below/File; ls -R mnt");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for n in 0..500 {
                    let path = volume.path(&respelled("some/path/below/file", &mut rng));
                    let dir = path.parent().unwrap();
                    match n % 5 {
                        0 => assert_eq!(fs::metadata(&path).unwrap().len(), 5),
                        1 => assert_eq!(fs::read(&path).unwrap(), b"text\n"),
                        2 => assert_eq!(names(dir), ["File"]),
                        3 => refused(fs::create_dir(&path), Errno::EXIST),
                        _ => drop(rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap()),
                    }
                }
            });
        }
    });
    volume.shell("rm -r mnt/some");
    assert!(names(&volume.path("")).is_empty());
    volume.done(mount);
}

#[test]
fn names_as_they_are_stored_cost_no_further_lookups() {
    let Some(volume) = Volume::new("exfat_case_cost", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    volume.shell("for n in $(seq 100); do mkdir mnt/Dir.$n; echo $n > mnt/Dir.$n/File; done");
    volume.done(mount);
    let mount = volume.mount("rw");
    let spent = |script: &str| {
        let before = mount.requests();
        volume.shell(script);
        let after = mount.requests();
        [Operation::Lookup, Operation::Getattr].map(|kind| after.get(kind) - before.get(kind))
    };
    let walk = "stat mnt/Dir.*/File > text";
    let first = spent(walk);
    assert_eq!(first[0], 100, "files; directories are listed");
    assert!(first[1] <= 1, "{first:?}");
    assert_eq!(spent(walk)[0], 0);
    // Another spelling of a file: three LOOKUPs, and stat's GETATTR.
    let other = spent("stat mnt/Dir.1/FILE > text");
    assert!(other[0] <= 4 && other[1] <= 1, "{other:?}");
    volume.done(mount);
}
