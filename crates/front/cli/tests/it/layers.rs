//! `--layer`: commands and mounts on several images as one tree.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use forerun_testkit::{Keeps, TempDir, TreeModel, require, temp_dir};
use rustix::process::{Signal, kill_process};

use crate::common::{Ran, command, ran};
use crate::restarting::{Scene, eventually, same};

/// A directory with two layers: an image of a base, and an archive that changes it.
struct Layered(TempDir);

impl Layered {
    fn new() -> Option<Self> {
        require::program("tar")?;
        let layered = Self(temp_dir("layers"));
        let at = |name: &str| layered.path(name);
        for dir in ["base/etc", "base/usr/bin", "app/etc", "app/usr/lib", "mnt"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("base/etc/passwd"), "root\n").unwrap();
        fs::write(at("base/etc/gone"), "gone\n").unwrap();
        fs::write(at("base/usr/bin/tool"), vec![7; 300_000]).unwrap();
        symlink("usr/bin", at("base/bin")).unwrap();
        fs::write(at("app/etc/passwd"), "root\napp\n").unwrap();
        fs::write(at("app/etc/.wh.gone"), "").unwrap();
        fs::write(at("app/usr/lib/.wh..wh..opq"), "").unwrap();
        fs::write(at("app/usr/lib/new"), "new\n").unwrap();
        layered.run(&["pack", "-q", "base", "base.sqsh"]).ok();
        let mut tar = Command::new("tar");
        let packed = tar
            .current_dir(at("."))
            .args(["-C", "app", "-cf", "app.tar", "."])
            .status();
        assert!(packed.unwrap().success());
        Some(layered)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = command(args);
        ran(command.current_dir(self.0.path()).output().unwrap())
    }

    /// Runs a command on the layers, with the words that follow them.
    fn on_layers(&self, before: &[&str], after: &[&str]) -> Ran {
        let layers = ["--layer", "base.sqsh", "--layer=app.tar"];
        self.run(&[before, &layers, after].concat())
    }
}

#[test]
fn commands_read_layers_as_one_image() {
    let Some(layered) = Layered::new() else {
        return;
    };
    let listed = layered.on_layers(&["ls", "-R"], &["etc", "usr"]).ok();
    let expected = "/etc:\npasswd\n\n/usr:\nbin\nlib\n\n/usr/bin:\ntool\n\n/usr/lib:\nnew\n";
    assert_eq!(listed.text(), expected);
    let cat = layered.on_layers(&["cat"], &["/etc/passwd", "bin/../lib/new"]);
    assert_eq!(cat.ok().text(), "root\napp\nnew\n");
    layered.on_layers(&["-q", "extract", "-C", "out"], &[]).ok();
    assert!(same(
        &layered.path("out/usr/bin/tool"),
        &layered.path("base/usr/bin/tool")
    ));
    assert!(!layered.path("out/etc/gone").exists());
    let archive = layered.on_layers(&["tar"], &[]).ok().stdout;
    let archived = TreeModel::of_tar(archive.as_slice()).unwrap();
    let mut extracted = TreeModel::of_host(&layered.path("out")).unwrap();
    // The archive has no member for the root.
    extracted.nodes.remove(&b""[..]);
    extracted.assert_same(&archived, &Keeps::CONTENTS);
    let info = layered.on_layers(&["info", "--json"], &[]).ok().json();
    assert_eq!(info["image"], "app.tar over base.sqsh");
    assert_eq!(info["format"], "layers");
    assert_eq!(info["details"]["layers"], "2");
    layered.on_layers(&["check", "-q"], &[]).ok();
    let dumped = layered.on_layers(&["dump"], &["/etc"]).ok();
    assert!(
        dumped.text().contains("app.tar, over base.sqsh"),
        "{}",
        dumped.text()
    );
    // The other way round, the base is on top.
    let turned = [
        "cat",
        "--layer",
        "app.tar",
        "--layer",
        "base.sqsh",
        "etc/gone",
        "etc/passwd",
    ];
    assert_eq!(layered.run(&turned).ok().text(), "gone\nroot\n");
    // A single layer hides its markers too.
    let single = layered.run(&["ls", "--layer", "app.tar", "etc"]).ok();
    assert_eq!(single.text(), "passwd\n");
}

#[test]
fn mistakes_with_layers_are_told() {
    let Some(layered) = Layered::new() else {
        return;
    };
    layered.on_layers(&["cat"], &["/etc/gone"]).fails(
        1,
        "forerun: app.tar over base.sqsh: /etc/gone: no such file or directory\n  \
         hint: forerun ls -R IMAGE lists every path",
    );
    layered
        .run(&["ls", "--layer", "base.sqsh", "--layer", "none"])
        .fails(4, "forerun: none: No such file or directory");
    fs::write(layered.path("elf"), b"\x7fELF and more").unwrap();
    let unknown = layered.run(&["ls", "--layer", "base.sqsh", "--layer", "elf"]);
    assert_eq!(unknown.code, Some(3));
    assert!(
        unknown.stderr.contains("elf: an ELF file"),
        "{}",
        unknown.stderr
    );
    let map = layered.on_layers(&["map"], &[]);
    map.fails(
        2,
        "forerun: --layer has no meaning for a map: it takes one image",
    );
    let repair = layered.on_layers(&["check", "--repair"], &[]);
    repair.fails(
        2,
        "forerun: --layer has no meaning for a repair: it takes one image",
    );
    let label = layered.on_layers(&["label"], &["NEW"]);
    label.fails(
        2,
        "forerun: --layer has no meaning for a label: it takes one image",
    );
    for option in ["--offset=1", "--format=romfs", "--partition=1"] {
        let refused = layered.on_layers(&["ls", option], &[]);
        assert_eq!(refused.code, Some(2), "{option}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("cannot be used with"),
            "{}",
            refused.stderr
        );
    }
    let kernel = layered.on_layers(&["mount", "--via", "kernel"], &["mnt"]);
    assert_eq!(kernel.code, Some(2), "{}", kernel.stderr);
    assert!(
        kernel
            .stderr
            .contains("--layer has no meaning for a mount by the kernel")
    );
}

/// Lists a directory that is open, by its inode: no name is looked up.
fn names(dir: &File) -> Vec<String> {
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_mount_of_layers_goes_on_when_its_server_is_killed() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    if require::program("tar").is_none() {
        return;
    }
    fs::create_dir_all(scene.path("up/d3")).unwrap();
    fs::write(scene.path("up/d3/new"), "new\n").unwrap();
    fs::write(scene.path("up/d3/.wh.9"), "").unwrap();
    let mut tar = Command::new("tar");
    tar.current_dir(scene.path("."))
        .args(["-C", "up", "-cf", "up.tar", "."]);
    assert!(tar.status().unwrap().success());
    scene
        .run(&["mount", "--layer", "image", "--layer", "up.tar", "mnt"])
        .ok();
    let mounts = scene.run(&["status", "--json"]).json();
    assert_eq!(mounts[0]["image"], "up.tar over image");
    let dir = File::open(scene.path("mnt/d3")).unwrap();
    let expected = ["15", "21", "3", "new"];
    assert_eq!(names(&dir), expected);
    let big = File::open(scene.path("mnt/big")).unwrap();
    for _ in 0..2 {
        let server = scene.server();
        kill_process(server, Signal::KILL).unwrap();
        eventually("another process serves", || scene.server() != server);
        assert_eq!(
            names(&dir),
            expected,
            "the directory as it was opened before"
        );
        scene.answers();
    }
    scene.restart().ok();
    scene.answers();
    assert!(same(&scene.path("mnt/big"), &scene.path("tree/big")));
    assert!(!scene.path("mnt/d3/9").exists());
    drop((dir, big));
    scene.run(&["umount", "mnt"]).ok();
}
