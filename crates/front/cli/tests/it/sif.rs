//! SIF files: those that forerun makes, as `siftool` reads them, and those with layers, in every
//! command.

use std::fs;
use std::process::Command;

use forerun_testkit::require;
use forerun_testkit::sif::{SQUASHFS_LAYER, SifFile};

use crate::common::place::Place;

/// Creates a place with a definition file and the tree `root`.
fn place() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("root/etc")).unwrap();
    fs::write(place.path("root/etc/version"), "1.0\n").unwrap();
    fs::write(place.path("tool.def"), "Bootstrap: scratch\n").unwrap();
    place
}

/// Returns what `siftool` prints.
fn siftool(place: &Place, args: &[&str]) -> Vec<u8> {
    let output = Command::new("siftool")
        .args(args)
        .current_dir(place.path("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}

#[test]
fn sif_files_that_forerun_makes_are_read_by_siftool() {
    if require::program("siftool").is_none() {
        return;
    }
    let place = place();
    let pack = ["pack", "-q", "--mkfs-time", "0", "--arch", "arm64"];
    let definition = ["--definition", "tool.def", "root", "tool.sif"];
    place.run(&[&pack[..], &definition].concat()).ok();
    let pack = ["pack", "-q", "--mkfs-time", "0", "root", "root.sqsh"];
    place.run(&pack).ok();

    let listed = String::from_utf8(siftool(&place, &["list", "tool.sif"])).unwrap();
    assert!(listed.contains("Def.FILE"), "{listed}");
    assert!(listed.contains("FS (Squashfs/*System/arm64)"), "{listed}");
    let header = String::from_utf8(siftool(&place, &["header", "tool.sif"])).unwrap();
    assert!(header.contains("arm64"), "{header}");
    assert_eq!(
        siftool(&place, &["dump", "1", "tool.sif"]),
        b"Bootstrap: scratch\n"
    );
    let image = fs::read(place.path("root.sqsh")).unwrap();
    assert_eq!(siftool(&place, &["dump", "2", "tool.sif"]), image);

    // There is room for other objects, such as a signature.
    siftool(&place, &["add", "tool.sif", "tool.def", "--datatype", "6"]);
    let version = place.run(&["cat", "tool.sif", "etc/version"]).ok();
    assert_eq!(version.text(), "1.0\n");
    siftool(&place, &["del", "1", "tool.sif"]);
    place.run(&["check", "-q", "tool.sif"]).ok();
}

#[test]
fn a_sif_file_is_the_same_however_it_is_made() {
    let place = place();
    let made = |args: &[&str]| {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    made(&["pack", "-q", "root", "a.sif"]);
    made(&["pack", "-q", "root", "root.sqsh"]);
    made(&["convert", "-q", "root.sqsh", "b.sif"]);
    let piped = made(&["pack", "-q", "--format", "sif", "root", "-"]);
    let file = fs::read(place.path("a.sif")).unwrap();
    assert_eq!(fs::read(place.path("b.sif")).unwrap(), file);
    assert_eq!(piped, file);
    let again = made(&["convert", "-q", "--format", "sif", "a.sif", "-"]);
    assert_eq!(again, file);
    let info = place.run(&["info", "--json", "a.sif"]).ok().json();
    assert_eq!(
        (&info["container"], &info["offset"]),
        (&"sif".into(), &32_768.into())
    );

    for (args, expected) in [
        (
            &["pack", "--arch", "arm64", "root", "c.sqsh"][..],
            "--arch is an option of sif",
        ),
        (&["pack", "--arch", "x86_64", "root", "c.sif"], "arm64"),
        (
            &["pack", "--definition", "nowhere.def", "root", "c.sif"],
            "nowhere.def",
        ),
    ] {
        let ran = place.run(args);
        assert!(
            ran.code != Some(0) && ran.stderr.contains(expected),
            "{}",
            ran.stderr
        );
    }
    assert!(!place.path("c.sif").exists());
}

/// Writes `image.sif`, a container image of two layers.
fn container_image(place: &Place) {
    fs::create_dir_all(place.path("upper/etc")).unwrap();
    fs::write(place.path("upper/etc/version"), "2.0\n").unwrap();
    fs::write(place.path("upper/new"), "new\n").unwrap();
    for layer in ["root", "upper"] {
        place
            .run(&["pack", "-q", layer, &format!("{layer}.sqsh")])
            .ok();
    }
    let layers = ["root.sqsh", "upper.sqsh"].map(|name| fs::read(place.path(name)).unwrap());
    let mut file = SifFile::default();
    let manifest = file.image(&[(SQUASHFS_LAYER, &layers[0]), (SQUASHFS_LAYER, &layers[1])]);
    fs::write(place.path("image.sif"), file.index(&[manifest]).bytes()).unwrap();
}

#[test]
fn every_command_opens_a_container_image_in_a_sif_file() {
    let place = place();
    container_image(&place);
    assert_eq!(place.run(&["ls", "image.sif"]).ok().text(), "etc\nnew\n");
    let first = ["ls", "--first-layers", "1"];
    let refused = place.run(&[&first[..], &["image.sif"]].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let lowest = place
        .run(&[&first[..], &["oci-sif:image.sif"]].concat())
        .ok();
    assert_ne!(lowest.text(), "etc\nnew\n");
    let info = place.run(&["info", "image.sif"]).ok();
    assert!(info.text().contains("SIF (Singularity"), "{}", info.text());
    assert_eq!(
        info.text().matches("verified as a whole").count(),
        2,
        "{}",
        info.text()
    );
    place.run(&["check", "-q", "image.sif"]).ok();
    place.run(&["extract", "-q", "-C", "out", "image.sif"]).ok();
    for args in [
        &["convert", "-q", "image.sif", "flat.sqsh"][..],
        &["convert", "-q", "image.sif", "flat.sif"],
    ] {
        place.run(args).ok();
    }
    for image in ["image.sif", "oci-sif:image.sif", "flat.sqsh", "flat.sif"] {
        let compared = place.run(&["diff", image, "out"]);
        assert_eq!((compared.code, compared.text()), (Some(0), ""), "{image}");
        let version = place.run(&["cat", image, "etc/version"]).ok();
        assert_eq!(version.text(), "2.0\n");
    }
    let kernel = place.run(&["mount", "--via", "kernel", "image.sif", "mnt"]);
    assert_eq!(kernel.code, Some(2), "{}", kernel.stderr);
    assert!(
        kernel.stderr.contains("several layers"),
        "{}",
        kernel.stderr
    );
    if require::fuse() {
        place.run(&["mount", "image.sif", "mnt"]).ok();
        let new = fs::read(place.path("mnt/new"));
        place.run(&["umount", "mnt"]).ok();
        assert_eq!(new.unwrap(), b"new\n");
    }
}

#[test]
fn a_file_that_has_changed_since_it_was_verified_is_verified_again() {
    let place = place();
    container_image(&place);
    let path = place.path("image.sif");
    place.run(&["ls", "image.sif"]).ok();
    let kept = fs::read_dir(place.path("cache/forerun/v1/indexes")).unwrap();
    assert_eq!(kept.count(), 1);
    // Another file of the same name and length.
    let mut bytes = fs::read(&path).unwrap();
    let upper = fs::read(place.path("upper.sqsh")).unwrap();
    let at = bytes
        .windows(upper.len())
        .position(|it| it == upper)
        .unwrap();
    bytes[at + upper.len() - 1] ^= 1;
    fs::write(&path, &bytes).unwrap();
    for image in ["image.sif", "oci-sif:image.sif"] {
        let refused = place.run(&["ls", image]);
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("is damaged: its digest is"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn an_overlay_that_cannot_be_read_is_named_once() {
    let place = place();
    place.run(&["pack", "-q", "root", "root.sqsh"]).ok();
    let mut ext = vec![0; 8192];
    ext[0x438..0x43a].copy_from_slice(b"\x53\xef");
    let mut file = SifFile::default();
    let root = fs::read(place.path("root.sqsh")).unwrap();
    file.partition(1, 2, &root).partition(2, 4, &ext);
    fs::write(place.path("a.sif"), file.bytes()).unwrap();
    for command in ["ls", "info", "check"] {
        let ran = place.run(&[command, "a.sif"]);
        assert_eq!(ran.code, Some(0), "{command}: {}", ran.stderr);
        let told = ran
            .stderr
            .matches("overlay partition 2 (ext2, ext3 or ext4)")
            .count();
        assert_eq!(told, 1, "{command}: {}", ran.stderr);
    }
}
