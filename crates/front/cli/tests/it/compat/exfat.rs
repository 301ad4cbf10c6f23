//! `mkfs.exfat`, `fsck.exfat`, `exfatlabel` and `mount.exfat`, compared with Debian's programs.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use forerun_testkit::require;

use super::{BOTH, By, Names, is_mounted};
use crate::common::Ran;

const PROGRAMS: &[&str] = &["mkfs.exfat", "fsck.exfat", "exfatlabel", "mount.exfat-fuse"];

fn names() -> Option<Names> {
    let names = Names::new(PROGRAMS)?;
    fs::write(names.path("list"), "no volume\n".repeat(1000)).unwrap();
    Some(names)
}

fn blank(names: &Names) {
    let _not_there = fs::remove_file(names.path("v"));
    File::create(names.path("v"))
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
}

fn run(names: &Names, by: By, line: &str) -> Ran {
    let words: Vec<_> = line.split(' ').collect();
    names.run(by, ".", &words)
}

/// Returns the lines of standard output except the version.
fn told(ran: &Ran) -> Vec<String> {
    let lines = ran
        .text()
        .lines()
        .filter(|line| !line.starts_with("exfatprogs version"));
    lines.map(str::to_string).collect()
}

/// Callers that make volumes, and the label that `exfatlabel` then shows.
const MKFS: &[(&str, &str, &str)] = &[
    ("udisks", "mkfs.exfat v", ""),
    ("udisks", "mkfs.exfat -L CARD v", "label: CARD"),
    (
        "gparted",
        "mkfs.exfat --volume-label=STICK v",
        "label: STICK",
    ),
    ("Android vold", "mkfs.exfat -L Karte v", "label: Karte"),
    (
        "camera scripts",
        "mkfs.exfat -c 64K -L DCIM v",
        "label: DCIM",
    ),
    ("camera scripts", "mkfs.exfat -c 32768 -b 1M v", ""),
    (
        "camera scripts",
        "mkfs.exfat --cluster-size=4K --boundary-align=2M v",
        "",
    ),
    ("Buildroot", "mkfs.exfat -f -L data v", "label: data"),
    ("debootstrap scripts", "mkfs.exfat -v v", ""),
];

#[test]
fn volumes_are_made_and_labelled_alike() {
    let Some(names) = names() else {
        return;
    };
    for (caller, line, label) in MKFS {
        for maker in BOTH {
            blank(&names);
            let made = run(&names, maker, line);
            assert_eq!(made.code, Some(0), "{caller}: {line}: {}", made.stderr);
            assert!(made.text().ends_with("exFAT format complete!\n"), "{line}");
            for reader in BOTH {
                let shown = run(&names, reader, "exfatlabel v");
                assert_eq!(
                    (shown.code, told(&shown).join("")),
                    (Some(0), (*label).to_string())
                );
                for checked in [
                    "fsck.exfat v",
                    "fsck.exfat -n v",
                    "fsck.exfat -y v",
                    "fsck.exfat -a v",
                ] {
                    let checked = run(&names, reader, checked);
                    assert_eq!(
                        told(&checked),
                        ["v: clean. directories 1, files 0"],
                        "{line}"
                    );
                    assert_eq!(checked.code, Some(0), "{line}: {}", checked.stderr);
                }
            }
        }
    }
    for setter in BOTH {
        let set = run(&names, setter, "exfatlabel v NEW");
        assert_eq!(
            (set.code, told(&set)),
            (Some(0), vec!["new label: NEW".to_string()])
        );
        let shown = BOTH.map(|by| told(&run(&names, by, "exfatlabel v")));
        assert_eq!(shown, [["label: NEW"], ["label: NEW"]]);
    }
    for serial in ["0x12345678", "0x75cc79f", "0x0"] {
        names.tool(&["exfatlabel", "-i", "v", serial]);
        let serials = BOTH.map(|by| told(&run(&names, by, "exfatlabel -i v")));
        assert_eq!(serials[0], serials[1], "{serial}");
        assert!(serials[1].concat().ends_with(serial), "{serials:?}");
    }
}

#[test]
fn mistakes_have_the_same_exit_code() {
    let Some(names) = names() else {
        return;
    };
    blank(&names);
    names.tool(&["mkfs.exfat", "v"]);
    for line in [
        "mkfs.exfat",
        "mkfs.exfat -h",
        "mkfs.exfat -V",
        "mkfs.exfat --bogus v",
        "mkfs.exfat -q v",
        "mkfs.exfat v extra",
        "mkfs.exfat none",
        "mkfs.exfat -L 1234567890123456 v",
        "fsck.exfat",
        "fsck.exfat -h",
        "fsck.exfat -V",
        "fsck.exfat none",
        "fsck.exfat list",
        "fsck.exfat --bogus v",
        "fsck.exfat -n -y v",
        "fsck.exfat v extra",
        "exfatlabel",
        "exfatlabel -h",
        "exfatlabel -q v",
        "exfatlabel none",
        "exfatlabel list",
        "exfatlabel v waytoolonglabel",
        "mount.exfat-fuse",
        "mount.exfat-fuse -h",
        "mount.exfat-fuse -V",
        "mount.exfat-fuse none dir",
        "mount.exfat-fuse list dir",
        "mount.exfat-fuse v",
    ] {
        let [other, ours] = BOTH.map(|by| run(&names, by, line));
        assert_eq!(ours.code, other.code, "{line}: {}", ours.stderr);
    }
    // Both programs print the same message, if any.
    for line in [
        "fsck.exfat none",
        "fsck.exfat list",
        "exfatlabel none",
        "exfatlabel list",
        "exfatlabel v waytoolonglabel",
        "mount.exfat-fuse none dir",
    ] {
        let [other, ours] = BOTH.map(|by| run(&names, by, line));
        assert_eq!(ours.stderr, other.stderr, "{line}");
    }
    for (line, code) in [
        ("mkfs.exfat -c 5000 v", 255),
        ("mkfs.exfat --pack-bitmap v", 1),
        ("fsck.exfat -b v", 16),
        ("exfatlabel -i v 0x12345678", 255),
    ] {
        assert_eq!(run(&names, By::Forerun, line).code, Some(code), "{line}");
    }
}

#[test]
fn damage_is_found_and_repaired() {
    let Some(names) = names() else {
        return;
    };
    blank(&names);
    let volume = crate::common::command(&[
        "pack",
        "--format",
        "exfat",
        "--volume-size",
        "20M",
        "--force",
        "tree",
        "v",
    ])
    .current_dir(names.path("."))
    .output()
    .unwrap();
    assert!(names.path("v").metadata().unwrap().size() > 0, "{volume:?}");
    let [other, ours] = BOTH.map(|by| run(&names, by, "fsck.exfat -n v"));
    assert_eq!((told(&other), other.code), (told(&ours), ours.code));
    assert_eq!(ours.code, Some(0));
    // The allocation bitmap marks used clusters as free.
    let file = File::options()
        .read(true)
        .write(true)
        .open(names.path("v"))
        .unwrap();
    let mut boot = [0; 512];
    file.read_exact_at(&mut boot, 0).unwrap();
    let heap = u32::from_le_bytes(boot[88..92].try_into().unwrap());
    file.write_all_at(&[0; 8], u64::from(heap) * 512).unwrap();
    let [other, ours] = BOTH.map(|by| run(&names, by, "fsck.exfat -n v"));
    assert_eq!(
        (other.code, ours.code),
        (Some(4), Some(4)),
        "{}",
        ours.stderr
    );
    assert!(
        ours.text().contains("v: corrupted. directories "),
        "{}",
        ours.text()
    );
    let repaired = run(&names, By::Forerun, "fsck.exfat -y v");
    assert_eq!(
        repaired.code,
        Some(1),
        "{} {}",
        repaired.text(),
        repaired.stderr
    );
    let [other, ours] = BOTH.map(|by| run(&names, by, "fsck.exfat -n v"));
    assert_eq!((other.code, ours.code), (Some(0), Some(0)));
    let beside = fs::read_dir(names.path(".")).unwrap();
    let beside = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(beside.into_iter().all(|name| !name.contains("undo")));
}

#[test]
fn volumes_are_mounted() {
    let Some(names) = names() else {
        return;
    };
    if !require::root() || !require::fuse() {
        return;
    }
    blank(&names);
    names.tool(&["mkfs.exfat", "v"]);
    fs::create_dir(names.path("mnt")).unwrap();
    let line =
        "mount.exfat-fuse -n v mnt -o rw,uid=5,gid=6,fmask=0137,dmask=027,noatime,blkdev,nonempty";
    let mounted = run(&names, By::Forerun, line);
    assert_eq!((mounted.code, mounted.stderr.as_str()), (Some(0), ""));
    assert!(mounted.text().starts_with("FUSE exfat 1.3.0"));
    assert!(is_mounted(&names.path("mnt")));
    fs::write(names.path("mnt/a"), "text").unwrap();
    let metadata = fs::metadata(names.path("mnt/a")).unwrap();
    assert_eq!(
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777),
        (5, 6, 0o640)
    );
    // Waits until the volume is durable, unlike umount(8).
    crate::common::volume::unmount(&names.path("mnt"));
    let checked = run(&names, By::Other, "fsck.exfat -n v");
    assert_eq!(told(&checked), ["v: clean. directories 1, files 1"]);
    let refused = run(&names, By::Forerun, "mount.exfat-fuse -o bogus v mnt");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("bogus") && !is_mounted(&names.path("mnt")));
}
