//! `check --report`: what was found, in a file.

use std::fs;
use std::path::Path;

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
