//! What `make` installs and packs, and where.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use forerun_testkit::{require, temp_dir, workspace_root};

const FORERUN: &str = env!("CARGO_BIN_EXE_forerun");

/// Runs a target of the Makefile, as in a tree without git, whose builds are below `target`.
fn make(target: &Path, arguments: &[&str]) -> Option<Output> {
    let mut make = Command::new(require::program("make")?);
    make.current_dir(workspace_root()).args(arguments);
    make.env("CARGO_TARGET_DIR", target)
        .env("GIT_DIR", "/nonexistent");
    make.env("CARGO_NET_OFFLINE", "true")
        .env_remove("SOURCE_DATE_EPOCH");
    let output = make.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{make:?}: {told}");
    Some(output)
}

/// Returns what a program prints.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the paths of all files and links, below `dir`.
fn files(dir: &Path) -> BTreeSet<String> {
    let dir = dir.to_str().unwrap();
    let found = printed("find", &[dir, "!", "-type", "d", "-printf", "/%P\n"]);
    found.lines().map(str::to_string).collect()
}

#[test]
fn everything_is_installed_below_the_directories_that_make_is_given() {
    let dir = temp_dir("install");
    let root = dir.path().join("root");
    let destination = format!("DESTDIR={}", root.display());
    let program = format!("FORERUN={FORERUN}");
    let sbom = dir.path().join("sbom");
    fs::create_dir(&sbom).unwrap();
    fs::write(sbom.join("forerun.licenses.txt"), "texts").unwrap();
    let sbom = format!("SBOM={}", sbom.display());
    let places = [
        destination.as_str(),
        &program,
        &sbom,
        "PREFIX=/usr",
        "LIBDIR=/usr/lib/x86_64-linux-gnu",
        "HELPERDIR=/usr/sbin",
        "COMPAT=1",
    ];
    let with = |target| [&[target][..], &places].concat();
    for target in ["install", "install-header"] {
        if make(dir.path(), &with(target)).is_none() {
            return;
        }
    }
    let found = files(&root);
    for file in [
        "/usr/bin/forerun",
        "/usr/bin/unsquashfs",
        "/usr/include/forerun.h",
        "/usr/lib/systemd/system/forerun-snapshotter.service",
        "/usr/lib/systemd/system/forerun@.service",
        "/usr/lib/tmpfiles.d/forerun.conf",
        "/usr/lib/x86_64-linux-gnu/pkgconfig/forerun.pc",
        "/usr/sbin/mount.composefs",
        "/usr/sbin/mount.fuse.forerun",
        "/usr/share/bash-completion/completions/forerun",
        "/usr/share/doc/forerun/LICENSE-APACHE",
        "/usr/share/doc/forerun/LICENSE-MIT",
        "/usr/share/doc/forerun/examples/apparmor",
        "/usr/share/doc/forerun/examples/fstab",
        "/usr/share/doc/forerun/forerun.licenses.txt",
        "/usr/share/man/man1/forerun-mount.1",
        "/usr/share/man/man8/mount.fuse.forerun.8",
    ] {
        assert!(found.contains(file), "{file}: {found:?}");
    }
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    for name in ["forerun@", "forerun-snapshotter"] {
        let unit = read(&format!("usr/lib/systemd/system/{name}.service"));
        assert!(unit.contains("ExecStart=/usr/bin/forerun "), "{unit}");
    }
    let profile = read("usr/share/doc/forerun/examples/apparmor");
    assert!(profile.contains("profile forerun /usr/bin/forerun "));
    let library = read("usr/lib/x86_64-linux-gnu/pkgconfig/forerun.pc");
    let place = "\nlibdir=/usr/lib/x86_64-linux-gnu\nincludedir=/usr/include\n";
    assert!(library.contains(place), "{library}");

    make(dir.path(), &with("uninstall"));
    let left = files(&root);
    let of_the_library = |file: &String| file.ends_with(".h") || file.ends_with(".pc");
    assert!(left.iter().all(of_the_library), "{left:?}");
    assert!(!root.join("usr/share/doc/forerun").exists());
}

/// The packages are for a program that cannot run here, as in a cross build: another one writes the
/// man pages.
#[test]
fn packages_are_made_without_git_and_of_a_program_for_another_machine() {
    let dir = temp_dir("packages");
    let (Some(_), Some(true_program)) =
        (require::program("dpkg-shlibdeps"), require::program("true"))
    else {
        return;
    };
    let program = format!("FORERUN={}", true_program.display());
    let generator = format!("GENERATOR={FORERUN}");
    let arguments = ["deb", "tarball", &program, &generator, "ARCH=aarch64"];
    if make(dir.path(), &arguments).is_none() {
        return;
    }
    let version = env!("CARGO_PKG_VERSION");
    let packages = dir.path().join("packages");
    let made = |name: &str| packages.join(name).to_str().unwrap().to_string();

    let package = made(&format!("forerun_{version}-1_arm64.deb"));
    let field = |package: &str, field| printed("dpkg-deb", &["--field", package, field]);
    assert!(field(&package, "Depends").starts_with("libc6 ("));
    let root = dir.path().join("root");
    printed("dpkg-deb", &["--extract", &package, root.to_str().unwrap()]);
    assert!(root.join("usr/share/man/man1/forerun-mount.1.gz").exists());
    let licences = root.join("usr/share/doc/forerun/forerun.licenses.txt.gz");
    let licences = printed("zcat", &[licences.to_str().unwrap()]);
    for part in [
        "\nzstd-sys 2.",
        ": zstd/LICENSE\n",
        ": xz/COPYING.0BSD\n",
        ": vendor/liblz4/LICENSE\n",
        "\nring 0.",
        "Copyright (c) Meta Platforms, Inc. and affiliates.",
    ] {
        assert!(licences.contains(part), "{part}");
    }
    assert!(!licences.contains("GNU GENERAL PUBLIC LICENSE"));

    // Packages that need one of the programs can be installed beside ours: snapd, for instance.
    let compat = made(&format!("forerun-compat_{version}-1_all.deb"));
    let names = |list| {
        let list = field(&compat, list);
        let names = list.trim().split(", ");
        let names = names.filter_map(|name| name.split(' ').next());
        names.map(str::to_string).collect::<BTreeSet<_>>()
    };
    assert!(names("Conflicts").contains("squashfs-tools"));
    assert_eq!(names("Conflicts"), names("Provides"));
    assert_eq!(names("Conflicts"), names("Replaces"));

    let archive = made(&format!("forerun-{version}-aarch64.tar.gz"));
    let listed = printed("tar", &["-tzf", &archive]);
    let files: BTreeSet<_> = listed.lines().collect();
    for file in [
        "./bin/forerun",
        "./lib/systemd/system/forerun@.service",
        "./share/doc/forerun/forerun.licenses.txt",
        "./share/man/man1/forerun.1",
    ] {
        assert!(files.contains(file), "{file}: {listed}");
    }
}
