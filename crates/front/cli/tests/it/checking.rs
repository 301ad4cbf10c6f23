//! `check --report`: the findings in a file.

use std::fs;
use std::path::Path;

use forerun_testkit::rng::Rng;
use forerun_testkit::{TempDir, temp_dir};

use crate::common::{Ran, command, ran};

fn run(dir: &TempDir, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir.path()).output().unwrap())
}

/// Returns a directory with `image`, whose only fragment has no bytes, and `sound`.
fn images() -> TempDir {
    let dir = temp_dir("checking");
    let kept = "tests/images/squashfs-4.0-big-endian.img";
    let mut image = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(kept)).unwrap();
    fs::write(dir.path().join("sound"), &image).unwrap();
    image[535..539].fill(0);
    fs::write(dir.path().join("image"), image).unwrap();
    dir
}

fn report(dir: &TempDir) -> serde_json::Value {
    serde_json::from_slice(&fs::read(dir.path().join("report")).unwrap()).unwrap()
}

#[test]
fn a_report_has_what_json_prints() {
    let dir = images();
    let checked = run(&dir, &["check", "--report", "report", "image"]);
    assert_eq!(checked.code, Some(1), "{}", checked.stderr);
    assert!(
        checked.text().contains("error: /tail: "),
        "{}",
        checked.text()
    );
    let told = report(&dir);
    let finding = &told["findings"][0];
    assert_eq!(
        (&finding["path"], &finding["kind"], &finding["offset"]),
        (&"/tail".into(), &"corrupt".into(), &0x21f.into())
    );
    let again = ["check", "--json", "--report", "report", "image"];
    let refused = run(&dir, &again);
    assert_eq!((refused.code, refused.text()), (Some(5), ""));
    fs::write(dir.path().join("report"), "old").unwrap();
    let printed = run(&dir, &[&again[..], &["--force"]].concat());
    assert_eq!(printed.code, Some(1));
    assert_eq!(printed.json(), told);
    assert_eq!(report(&dir), told, "the file is replaced");
}

#[test]
fn a_report_of_a_sound_image_says_so() {
    let dir = images();
    let checked = run(
        &dir,
        &["check", "-q", "--quick", "--report", "report", "sound"],
    )
    .ok();
    assert_eq!(checked.text(), "");
    let report = report(&dir);
    assert_eq!(report["findings"], serde_json::json!([]));
    assert_eq!(
        (&report["errors"], &report["quick"]),
        (&0.into(), &true.into())
    );
}

#[test]
fn mistakes_with_reports() {
    let dir = images();
    for args in [
        &["check", "--report", "image", "image"][..],
        &["check", "--report", "-", "image"],
        &["check", "--report", "report", "--repair", "image"],
        &["check", "--force", "image"],
    ] {
        let refused = run(&dir, args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
    }
    let nowhere = run(&dir, &["check", "--report", "none/report", "sound"]);
    assert_eq!(nowhere.code, Some(5), "{}", nowhere.stderr);
    assert!(!dir.path().join("report").exists());
}

/// Packs text in many small and large files, which all codecs compress.
fn text_tree(dir: &TempDir) {
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..40_u32 {
        let lines = (0..n * n * 4).map(|line| format!("line {} of file {n}\n", line * 7919 % 1009));
        fs::write(tree.join(format!("file{n}")), lines.collect::<String>()).unwrap();
    }
}

#[test]
fn a_flipped_bit_is_found_or_lies_in_the_share_that_is_told() {
    let dir = temp_dir("flips");
    text_tree(&dir);
    for (format, compressor, share) in [
        // The table of owners is too short to be compressed.
        (
            "squashfs",
            "gzip",
            "; without checksums: 4 B of the metadata)",
        ),
        (
            "squashfs",
            "xz",
            "; without checksums: 4 B of the metadata)",
        ),
        (
            "squashfs",
            "zstd",
            "without checksums: all contents (zstd), the metadata)",
        ),
        (
            "squashfs",
            "lz4",
            "without checksums: all contents (lz4), the metadata)",
        ),
        (
            "squashfs",
            "lzo",
            "without checksums: all contents (lzo), the metadata)",
        ),
        ("erofs", "zstd", "the metadata)"),
        ("erofs", "lz4", "(lz4, stored), the metadata)"),
        ("erofs", "deflate", "(deflate, stored), the metadata)"),
        (
            "erofs",
            "none",
            "without checksums: all contents (stored), the metadata)",
        ),
    ] {
        let kind = ["--format", format, "--compressor", compressor];
        let args = [&["pack", "-q", "--force"], &kind[..], &["tree", "a.img"]].concat();
        run(&dir, &args).ok();
        let sound = run(&dir, &["check", "a.img"]).ok();
        assert!(sound.text().contains(share), "{kind:?}: {}", sound.text());
        let json = run(&dir, &["check", "--json", "a.img"]).ok().json();
        let told = json["unproven_bytes"].as_u64().unwrap();
        if (format, compressor) == ("erofs", "zstd") {
            let bytes = json["bytes"].as_u64().unwrap();
            assert!(told * 3 < bytes, "{kind:?}: {told} of {bytes}");
        }
        // All bytes except four, which no seed flips.
        let is_covered = share.contains("4 B of");
        let bytes = fs::read(dir.path().join("a.img")).unwrap();
        let mut rng = Rng::new(7);
        for _ in 0..25 {
            let mut flipped = bytes.clone();
            let at = 96 + rng.below(bytes.len() as u64 - 96 - 4096) as usize;
            flipped[at] ^= 1 << rng.below(8);
            fs::write(dir.path().join("flipped"), flipped).unwrap();
            let checked = run(&dir, &["check", "flipped"]);
            let is_told = checked.text().contains("without checksums");
            let is_found = checked.code == Some(1);
            assert!(
                is_found || (is_told && !is_covered),
                "{kind:?}: a bit of byte {at}"
            );
        }
    }
}
