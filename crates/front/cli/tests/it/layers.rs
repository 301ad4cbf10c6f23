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

/// A directory with two layers: a base image, and an archive that changes it.
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

    /// Runs a command on the layers, followed by `after`.
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
    let extracted = TreeModel::of_host(&layered.path("out")).unwrap();
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
    // In the opposite order, the base is on top.
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
    // A single layer hides its whiteouts too.
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
        "forerun: --layer cannot be used for a map, which takes one image",
    );
    let repair = layered.on_layers(&["check", "--repair"], &[]);
    repair.fails(
        2,
        "forerun: --layer cannot be used for a repair, which takes one image",
    );
    let label = layered.on_layers(&["label"], &["NEW"]);
    label.fails(
        2,
        "forerun: --layer cannot be used for a label, which takes one image",
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

/// Lists an open directory by its inode, without looking up a name.
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
    let mounts = scene.run(&["status", "--json"]).mounts();
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

struct KernelMount(PathBuf);

impl KernelMount {
    fn new(kind: &str, options: &str, dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", kind, "-o", options, kind]).arg(&dir);
        let told = mount.output().unwrap();
        let text = String::from_utf8_lossy(&told.stderr);
        assert!(
            told.status.success(),
            "mount -t {kind} -o {options}: {text}"
        );
        Self(dir)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _detached = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn shell(at: &std::path::Path, script: &str) {
    let status = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .status();
    assert!(status.unwrap().success(), "{script}");
}

/// Three layers in which the kernel's overlayfs moves and changes files and directories, compared
/// with the tree that it shows.
#[test]
fn what_overlayfs_moved_is_shown_as_the_kernel_shows_it() {
    if !require::root() || !require::fuse() || require::program("tar").is_none() {
        return;
    }
    let dir = temp_dir("layers-moved");
    let at = dir.path().canonicalize().unwrap();
    // overlayfs attributes need a filesystem that can hold a whole stack.
    let t = at.join("t");
    let _disk = KernelMount::new("tmpfs", "size=200m", t.clone());
    shell(
        &t,
        "mkdir -p 0/etc 0/usr/share/doc/deep 0/usr/lib 0/var 1 2 w1 w2 m
         seq 1 9000 > 0/etc/services; echo base > 0/etc/hostname; ln 0/etc/hostname 0/etc/linked
         echo a > 0/usr/share/doc/a; echo b > 0/usr/share/doc/deep/b; seq 1 70000 > 0/usr/lib/big
         ln -s services 0/etc/link; echo gone > 0/var/gone; chmod 600 0/usr/lib/big",
    );
    let options = "redirect_dir=on,metacopy=on";
    let steps = [
        "chown 5 m/etc/hostname; chmod 640 m/etc/services; mv m/usr/share/doc m/usr/share/doc2
         mv m/usr/lib/big m/etc/big; echo new > m/usr/share/doc2/new; rm m/var/gone
         mkdir m/usr/share/doc; echo other > m/usr/share/doc/a",
        "mv m/usr/share/doc2/deep m/var/deeper; mv m/usr/share/doc2 m/doc3; chown 7:8 m/etc/big
         mv m/etc/services m/var/deeper/services; chmod 700 m/var/deeper/b; mv m/usr m/usr2
         touch -d @1000000000 m/etc/hostname",
    ];
    for (number, step) in steps.iter().enumerate() {
        let lower: Vec<_> = (0..=number).rev().map(|n| t.join(n.to_string())).collect();
        let lower: Vec<_> = lower
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let (up, work) = (number + 1, format!("w{}", number + 1));
        let stack = format!(
            "lowerdir={},upperdir={},workdir={},{options}",
            lower.join(":"),
            t.join(up.to_string()).display(),
            t.join(work).display()
        );
        let _stack = KernelMount::new("overlay", &stack, t.join("m"));
        shell(&t, step);
    }
    let lower = ["2", "1", "0"]
        .map(|n| t.join(n).display().to_string())
        .join(":");
    let kernel = KernelMount::new(
        "overlay",
        &format!("ro,lowerdir={lower},{options}"),
        at.join("kernel"),
    );
    let below_root = |mut tree: TreeModel| {
        tree.nodes.remove(&b""[..]);
        tree
    };
    let expected = below_root(TreeModel::of_host(&kernel.0).unwrap());
    let keeps = Keeps::EVERYTHING.without_hard_links();
    assert!(
        expected.nodes.contains_key(&b"doc3/new"[..]),
        "the kernel follows redirects"
    );
    let run = |args: &[&str]| ran(command(args).current_dir(&at).output().unwrap());
    for format in ["squashfs", "erofs", "tar"] {
        let images: Vec<String> = (0..3).map(|n| format!("{n}.{format}")).collect();
        for (n, image) in images.iter().enumerate() {
            match format {
                "tar" => shell(
                    &at,
                    &format!("tar --xattrs --xattrs-include='*' -cf {image} -C t/{n} ."),
                ),
                _ => _ = run(&["pack", "-q", "--format", format, &format!("t/{n}"), image]).ok(),
            }
        }
        let layers: Vec<&str> = images.iter().flat_map(|image| ["--layer", image]).collect();
        let with = |before: &[&str], after: &[&str]| run(&[before, &layers, after].concat());
        let out = format!("out-{format}");
        with(&["-q", "extract", "-C", &out], &[]).ok();
        let extracted = TreeModel::of_host(&at.join(&out)).unwrap();
        expected.assert_same(&below_root(extracted), &keeps);
        fs::create_dir_all(at.join("mnt")).unwrap();
        with(&["mount"], &["mnt"]).ok();
        let mounted = TreeModel::of_host(&at.join("mnt"));
        // By its name only, without listing first.
        run(&["umount", "mnt"]).ok();
        with(&["mount"], &["mnt"]).ok();
        let direct = fs::read(at.join("mnt/var/deeper/services"));
        run(&["umount", "mnt"]).ok();
        expected.assert_same(&below_root(mounted.unwrap()), &keeps);
        assert!(direct.unwrap() == fs::read(t.join("0/etc/services")).unwrap());
        let archive = with(&["tar"], &[]).ok().stdout;
        let archived = TreeModel::of_tar(archive.as_slice()).unwrap();
        expected.assert_same(&below_root(archived), &keeps);
        let cat = with(&["cat"], &["/etc/big", "/var/deeper/b"]).ok();
        assert!(cat.stdout.ends_with(b"70000\nb\n"), "{format}");
        let check = with(&["check"], &[]);
        assert_eq!(check.code, Some(0), "{format}: {}", check.text());
        // Without the layer that has the contents, reading fails.
        let part: Vec<&str> = ["--layer", &images[1], "--layer", &images[2]].to_vec();
        let told = run(&[&["cat"], &part[..], &["/etc/big"]].concat());
        assert_eq!(told.code, Some(1), "{format}: {told:?}");
        let told = run(&[&["ls"], &part[..], &["/var/deeper"]].concat());
        assert_eq!(told.code, Some(1), "{format}: {told:?}");
        let check = run(&[&["check"], &part[..]].concat());
        assert_eq!(check.code, Some(1), "{format}: {}", check.text());
    }
}
