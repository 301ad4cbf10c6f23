//! Empty volumes: `mkfs`, and `pack --empty`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forerun_testkit::exfat_tools::assert_clean;
use forerun_testkit::{LoopDevice, require, temp_dir};

use crate::common::{Ran, command, ran};

fn forerun(dir: &Path, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir).output().unwrap())
}

#[test]
fn mkfs_makes_an_empty_volume_that_fsck_takes() {
    let dir = temp_dir("mkfs");
    let at = dir.path();
    let args = [
        "mkfs", "exfat", "--size", "32G", "--label", "CARD", "card.img",
    ];
    forerun(at, &args).ok();
    let metadata = at.join("card.img").metadata().unwrap();
    assert_eq!(metadata.len(), 32 << 30);
    assert!(
        metadata.blocks() * 512 < 4 << 20,
        "{} blocks",
        metadata.blocks()
    );
    assert_clean(&at.join("card.img"));
    assert_eq!(forerun(at, &["label", "card.img"]).ok().text(), "CARD\n");
    assert_eq!(forerun(at, &["ls", "card.img"]).ok().text(), "");
    // An existing file is filled.
    let file = fs::File::create(at.join("blank.img")).unwrap();
    file.set_len(8 << 20).unwrap();
    forerun(at, &["mkfs", "exfat", "blank.img"]).ok();
    assert_eq!(at.join("blank.img").metadata().unwrap().len(), 8 << 20);
    assert_clean(&at.join("blank.img"));
    // As `pack` makes it.
    let options = [
        "--volume-size",
        "8M",
        "--label",
        "CARD",
        "--serial",
        "1234-ABCD",
    ];
    let pack = [
        &["pack", "--format", "exfat", "--empty"],
        &options[..],
        &["packed.img"],
    ];
    forerun(at, &pack.concat()).ok();
    let mkfs = [
        "mkfs",
        "exfat",
        "--size",
        "8M",
        "-L",
        "CARD",
        "--serial",
        "1234-ABCD",
        "made.img",
    ];
    forerun(at, &mkfs).ok();
    let read = |name: &str| fs::read(at.join(name)).unwrap();
    assert!(read("packed.img") == read("made.img"));
}

#[test]
fn mkfs_refuses_what_holds_a_filesystem_without_force() {
    let dir = temp_dir("mkfs-refuses");
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    forerun(at, &["pack", "--format", "squashfs", "tree", "a.img"]).ok();
    let mut ext = vec![0; 8 << 20];
    ext[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(at.join("b.img"), &ext).unwrap();
    for (name, what) in [("a.img", "squashfs"), ("b.img", "ext2, ext3 or ext4")] {
        let before = fs::read(at.join(name)).unwrap();
        let hint = "hint: --force overwrites it";
        forerun(at, &["mkfs", "exfat", "--size", "8M", name]).fails(
            5,
            &format!("forerun: {name}: holds {what}, which would be lost\n  {hint}"),
        );
        assert!(fs::read(at.join(name)).unwrap() == before);
        forerun(at, &["mkfs", "exfat", "--size", "8M", "--force", name]).ok();
        assert_clean(&at.join(name));
    }
    forerun(at, &["mkfs", "exfat", "new.img"]).fails(
        2,
        "forerun: new.img: missing --size\n  hint: give the size, as in --size 32G",
    );
    forerun(at, &["mkfs", "exfat", "--size", "8M", "tree"])
        .fails(5, "forerun: tree: is neither a file nor a block device");
    let twice = ["pack", "--format", "exfat", "--empty", "tree", "x.img"];
    forerun(at, &twice).fails(2, "forerun: --empty takes no INPUT");
}

/// Uses a loop device with old data everywhere. Bytes that mkfs does not write must not matter.
#[test]
fn mkfs_on_a_device_clears_what_the_volume_uses_and_locks_the_file_behind_it() {
    if !require::root() || require::program("losetup").is_none() {
        return;
    }
    let dir = temp_dir("mkfs-device");
    let at = dir.path();
    fs::write(at.join("disk"), vec![0xa5; 80 << 20]).unwrap();
    let attached = LoopDevice::new(&at.join("disk"), &[]);
    let device = attached.0.to_str().unwrap();
    let made = forerun(at, &["mkfs", "exfat", "--label", "CARD", device]);
    let again = forerun(at, &["mkfs", "exfat", device]);
    let behind = forerun(at, &["mkfs", "exfat", "--force", "disk"]);
    let message = format!("forerun: {device}: holds exfat, which would be lost");
    drop(attached);
    made.ok();
    again.fails(5, &format!("{message}\n  hint: --force overwrites it"));
    assert_eq!(behind.code, Some(4), "{}", behind.stderr);
    assert_clean(&at.join("disk"));
    assert_eq!(forerun(at, &["ls", "disk"]).ok().text(), "");
    let disk = fs::read(at.join("disk")).unwrap();
    assert_eq!(disk.len(), 80 << 20);
    assert!(disk.ends_with(&[0xa5; 4096]), "free space was written");
}

#[test]
fn a_volume_has_the_sectors_of_its_device() {
    if !require::root() || require::program("losetup").is_none() {
        return;
    }
    let dir = temp_dir("mkfs-4kn");
    let at = dir.path();
    let file = fs::File::create(at.join("disk")).unwrap();
    file.set_len(80 << 20).unwrap();
    fs::create_dir(at.join("tree")).unwrap();
    let attached = LoopDevice::new(&at.join("disk"), &["--sector-size=4096"]);
    let device = attached.0.to_str().unwrap();
    let sectors = || {
        let image = fs::read(at.join("disk")).unwrap();
        1 << image[108]
    };
    let makers: [&[&str]; 3] = [
        &["mkfs", "exfat", "--force", device],
        &["mkfs", "exfat", "--force", "--sector-size", "4096", device],
        &[
            "pack",
            "--format",
            "exfat",
            "--volume-size",
            "80M",
            "--force",
            "tree",
            device,
        ],
    ];
    for maker in makers {
        forerun(at, maker).ok();
        assert_eq!(sectors(), 4096, "{maker:?}");
        assert_clean(Path::new(device));
        forerun(at, &["check", device]).ok();
    }
    let before = fs::read(at.join("disk")).unwrap();
    let hint = "hint: no system can mount a volume with smaller sectors";
    let message = "--sector-size 512: the device has sectors of 4096 bytes";
    for maker in makers {
        let refused = [&["--sector-size", "512"], &maker[maker.len() - 1..]].concat();
        let refused = [&maker[..maker.len() - 1], &refused[..]].concat();
        if !maker.contains(&"--sector-size") {
            let ran = forerun(at, &refused);
            assert_eq!(ran.code, Some(2), "{}", ran.stderr);
            assert!(
                ran.stderr.contains(message) && ran.stderr.contains(hint),
                "{}",
                ran.stderr
            );
        }
    }
    assert!(fs::read(at.join("disk")).unwrap() == before);
}
