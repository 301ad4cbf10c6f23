//! `forerun pack --appimage` creates AppImages that run, and reports what an application directory
//! lacks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Fixture, RUNTIME, errors, text};

const DESKTOP: &str = "[Desktop Entry]\nType=Application\nName=X\nExec=x\nIcon=x\n";

fn pack(fixture: &Fixture, arguments: &[&str]) -> Output {
    Command::new(forerun_testkit::forerun_binary())
        .args(["pack", "--appimage", "--force"])
        .args(arguments)
        .current_dir(fixture.temp.path())
        .output()
        .unwrap()
}

fn complete(tree: &Path) {
    fs::write(tree.join("x.desktop"), DESKTOP).unwrap();
    fs::write(tree.join("x.png"), "").unwrap();
}

#[test]
fn a_packed_directory_runs() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    complete(&fixture.tree);
    let runtime = ["--runtime", RUNTIME];
    for options in [&[][..], &["--compressor", "xz", "--block-size", "1M"]] {
        let arguments = [&runtime, options, &["tree", "new.AppImage"]].concat();
        let made = pack(&fixture, &arguments);
        assert!(made.status.success(), "{}", errors(&made));
        let new = fixture.temp.path().join("new.AppImage");
        let mode = fs::metadata(&new).unwrap().permissions().mode();
        assert_eq!(mode & 0o100, 0o100);
        assert_eq!(&fs::read(&new).unwrap()[8..11], b"AI\x02");
        let run = |arguments: &[&str]| {
            let mut command = fixture.command_of(&new, true);
            command.args(arguments).output().unwrap()
        };
        assert_eq!(text(&run(&["print", "a", "b"])), "a\nb\n");
        assert_eq!(run(&["status", "3"]).status.code(), Some(3));
        let offset = text(&run(&["--appimage-offset"]));
        if let Some(unsquashfs) = forerun_testkit::require::program("unsquashfs") {
            let listed = Command::new(unsquashfs)
                .args(["-o", offset.trim(), "-lln"])
                .arg(&new)
                .output()
                .unwrap();
            let listed = text(&listed);
            let blob = listed.lines().find(|line| line.contains("usr/bin/blob"));
            assert!(blob.unwrap().contains(" 0/0 "), "{listed}");
        }
    }
    fixture.becomes_clean("packed");
}

#[test]
fn what_a_directory_lacks_is_named() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let tree = &fixture.tree;
    let at = |name: &str| tree.join(name);
    let fails = |code: i32, expected: &str| {
        let made = pack(&fixture, &["--runtime", RUNTIME, "tree", "no.AppImage"]);
        let errors = errors(&made);
        assert_eq!(made.status.code(), Some(code), "{errors}");
        assert!(errors.contains(expected), "{expected}: {errors}");
        assert!(errors.contains("hint: "), "{errors}");
        assert!(!fixture.temp.path().join("no.AppImage").exists());
    };
    fails(3, "tree/x.desktop: has no Type in [Desktop Entry]");
    fs::write(at("x.desktop"), DESKTOP.replace("Application", "Link")).unwrap();
    fails(3, "tree/x.desktop: has Type=Link");
    fs::write(at("x.desktop"), DESKTOP).unwrap();
    fails(3, "tree: has no icon x.png, x.svg, x.xpm");
    fs::write(at("x.svg"), "").unwrap();
    fs::write(at("y.desktop"), DESKTOP).unwrap();
    fails(
        3,
        "tree: has several .desktop files, x.desktop and y.desktop",
    );
    fs::remove_file(at("y.desktop")).unwrap();
    fs::rename(at("x.desktop"), at("x.other")).unwrap();
    fails(3, "tree: has no .desktop file");
    fs::rename(at("x.other"), at("x.desktop")).unwrap();
    fs::set_permissions(at("AppRun"), fs::Permissions::from_mode(0o644)).unwrap();
    fails(3, "tree/AppRun: cannot be run");
    fs::rename(at("AppRun"), at("run")).unwrap();
    fails(3, "tree/AppRun: is missing");
    std::os::unix::fs::symlink("/nowhere/run", at("AppRun")).unwrap();
    fails(3, "tree/AppRun: points to no file");
}

#[test]
fn runtimes_and_arguments_that_do_not_fit_are_refused() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    complete(&fixture.tree);
    let whole = fixture.image.to_str().unwrap();
    let desktop = "tree/x.desktop";
    for (arguments, code, expected) in [
        (
            &["--runtime", whole, "tree", "o"][..],
            3,
            "the program ends at byte",
        ),
        (
            &["--runtime", desktop, "tree", "o"],
            3,
            "not an ELF program",
        ),
        (&["--runtime", "none", "tree", "o"], 4, "none"),
        (
            &["tree", "o"],
            4,
            "the runtime of AppImages is not installed",
        ),
        (
            &["--runtime", RUNTIME, "tree", "-"],
            2,
            "not standard output",
        ),
        (
            &["--runtime", RUNTIME, "payload", "o"],
            2,
            "made from a directory",
        ),
        (
            &["--runtime", RUNTIME, "--format", "erofs", "tree", "o"],
            2,
            "--format is erofs",
        ),
        (
            &["--runtime", RUNTIME, "--align", "4K", "tree", "o"],
            2,
            "--align is an option of romfs and exfat",
        ),
    ] {
        let made = pack(&fixture, arguments);
        let errors = errors(&made);
        assert_eq!(made.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert!(!fixture.temp.path().join("o").exists());
    }
}
