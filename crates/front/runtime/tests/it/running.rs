//! The program in an AppImage gets its arguments and environment, and its exit status becomes the
//! AppImage's.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use crate::common::{Fixture, RUNTIME, WAYS, errors, text};

#[test]
fn arguments_status_and_signals_pass_in_every_way_to_mount() {
    let Some(fixture) = Fixture::new("zstd") else {
        return;
    };
    for (way, is_root) in WAYS {
        let command = || {
            let mut command = fixture.command(is_root);
            command.env("FORERUN_RUNTIME_WAYS", way);
            command
        };
        let what = format!("{way}, root: {is_root}");
        let printed = command()
            .args(["print", "a b", "--appimage-help", "", "*"])
            .output()
            .unwrap();
        assert_eq!(text(&printed), "a b\n--appimage-help\n\n*\n", "{what}");
        assert_eq!(errors(&printed), "", "{what}");
        let status = command().args(["status", "42"]).status().unwrap();
        assert_eq!(status.code(), Some(42), "{what}");
        let status = command().args(["kill", "TERM"]).status().unwrap();
        assert_eq!(status.signal(), Some(15), "{what}");
        let sum = command().arg("sum").output().unwrap();
        let blob = std::process::Command::new("md5sum")
            .stdin(fs::File::open(fixture.tree.join("usr/bin/blob")).unwrap())
            .output()
            .unwrap();
        assert_eq!(text(&sum), text(&blob), "{what}");
        let owner = command().arg("owner").output().unwrap();
        let user = if is_root { "0\n0\n" } else { "65534\n65534\n" };
        assert_eq!(text(&owner), user, "{what}");
        fixture.becomes_clean(&what);
    }
}

#[test]
fn every_compressor_is_read() {
    for compressor in ["gzip", "xz", "lz4", "lzo"] {
        let Some(fixture) = Fixture::new(compressor) else {
            return;
        };
        let ran = fixture.command(true).args(["print", "x"]).output().unwrap();
        assert_eq!(text(&ran), "x\n", "{compressor}: {}", errors(&ran));
        fixture.becomes_clean(compressor);
    }
}

#[test]
fn the_environment_names_the_appimage() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let link = fixture.temp.path().join("link");
    symlink(&fixture.image, &link).unwrap();
    let output = fixture
        .command_of(&link, true)
        .env("HOME", "/home/user")
        .env_remove("XDG_CONFIG_HOME")
        .arg("env")
        .output()
        .unwrap();
    let here = fixture.temp.path().to_str().unwrap();
    let text = text(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], fixture.image.to_str().unwrap());
    assert!(lines[1].starts_with(&format!("{here}/tmp/.mount_SomeAp")));
    assert_eq!(lines[2], link.to_str().unwrap());
    assert_eq!(lines[3..], [here, "/home/user", "", here]);
    fixture.becomes_clean("environment");
}

#[test]
fn portable_directories_replace_those_of_the_user() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let made = ["home", "config"].map(|kind| {
        let option = format!("--appimage-portable-{kind}");
        let output = fixture.command(true).arg(option).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        text(&output).trim_end().to_string()
    });
    let image = fixture.image.to_str().unwrap();
    assert_eq!(made, [format!("{image}.home"), format!("{image}.config")]);
    let output = fixture.command(true).arg("env").output().unwrap();
    let text = text(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[4..6], made);
    fixture.becomes_clean("portable");
}

#[test]
fn portable_directories_of_another_user_are_not_used() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let name = |suffix: &str| PathBuf::from(format!("{}{suffix}", fixture.image.display()));
    // The commands run as root and as nobody; user 1000 owns the directory and the link.
    let (home, config) = (name(".home"), name(".config"));
    fs::create_dir(&home).unwrap();
    chown(&home, Some(1000), Some(1000)).unwrap();
    symlink(fixture.temp.path(), &config).unwrap();
    lchown(&config, Some(1000), Some(1000)).unwrap();
    for (way, is_root) in WAYS {
        let mut command = fixture.command(is_root);
        command
            .arg("env")
            .env("FORERUN_RUNTIME_WAYS", way)
            .env("HOME", "/home/user")
            .env_remove("XDG_CONFIG_HOME");
        let output = command.output().unwrap();
        let text = text(&output);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[4..6], ["/home/user", ""], "{way}");
        for path in [&home, &config] {
            let warning = format!(
                "AppImage: {} belongs to another user, and is not used\n",
                path.display()
            );
            assert!(errors(&output).contains(&warning), "{}", errors(&output));
        }
    }
    let option = "--appimage-portable-home";
    let output = fixture.command(true).arg(option).output().unwrap();
    assert!(!output.status.success());
    let error = format!("AppImage: {} belongs to another user\n", home.display());
    assert_eq!(errors(&output), error);
    fixture.becomes_clean("portable directories of another user");
}

#[test]
fn another_appimage_is_run_by_a_runtime_alone() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let output = fixture
        .command_of(RUNTIME.as_ref(), true)
        .env("TARGET_APPIMAGE", &fixture.image)
        .arg("env")
        .output()
        .unwrap();
    let text = text(&output);
    let first = text.lines().next().unwrap_or_default();
    assert_eq!(first, fixture.image.to_str().unwrap());
    let alone = fixture.command_of(RUNTIME.as_ref(), true).output().unwrap();
    assert_eq!(alone.status.code(), Some(125));
    assert!(
        errors(&alone).contains("without an image"),
        "{}",
        errors(&alone)
    );
    fixture.becomes_clean("target");
}

#[test]
fn facts_are_printed() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let print = |option: &str| {
        let output = fixture.command(true).arg(option).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        text(&output)
    };
    let offset = fs::metadata(RUNTIME).unwrap().len();
    assert_eq!(print("--appimage-offset"), format!("{offset}\n"));
    if let Some(unsquashfs) = forerun_testkit::require::program("unsquashfs") {
        let listed = std::process::Command::new(unsquashfs)
            .args(["-o", &offset.to_string(), "-l"])
            .arg(&fixture.image)
            .output()
            .unwrap();
        assert!(text(&listed).contains("squashfs-root/usr/bin/blob"));
    }
    let version = format!("forerun-runtime {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(print("--appimage-version"), version);
    assert!(print("--appimage-help").contains("--appimage-portable-config"));
    assert_eq!(print("--appimage-signature"), "");
    let wrong = fixture
        .command(true)
        .arg("--appimage-exract")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(125));
    assert!(
        errors(&wrong).contains("no such option"),
        "{}",
        errors(&wrong)
    );
}

#[test]
fn sections_that_other_tools_wrote_are_printed() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let Some(objcopy) = forerun_testkit::require::program("objcopy") else {
        return;
    };
    let at = |name: &str| fixture.temp.path().join(name);
    fs::write(at("signature"), b"signed\n\0\0\0\0").unwrap();
    fs::write(at("updates"), b"zsync|https://example.org/x\0\0").unwrap();
    let add = |section: &str, file: &str| {
        let file = at(file);
        format!("--add-section={section}={}", file.display())
    };
    let made = std::process::Command::new(objcopy)
        .args([add(".sha256_sig", "signature"), add(".upd_info", "updates")])
        .args([RUNTIME.as_ref(), at("signed").as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", errors(&made));
    for (option, expected) in [
        ("--appimage-signature", "signed\n"),
        (
            "--appimage-updateinformation",
            "zsync|https://example.org/x\n",
        ),
    ] {
        let mut command = fixture.command_of(RUNTIME.as_ref(), true);
        let output = command
            .env("TARGET_APPIMAGE", at("signed"))
            .arg(option)
            .output();
        assert_eq!(text(&output.unwrap()), expected);
    }
}
