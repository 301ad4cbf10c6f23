//! `mkfs.erofs`, `fsck.erofs`, `dump.erofs` and `erofsfuse`, compared with Debian's programs.

mod lines;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;

use forerun_testkit::require;

use super::unsquashfs::tree_of;
use super::{BOTH, By, Names, is_mounted};
use crate::common::{Ran, command, ran};
use lines::{DUMP, FSCK, MKFS, MKFS_MISTAKES, MKFS_NEWER};

fn names() -> Option<Names> {
    if !require::root() {
        return None;
    }
    let names = Names::new(&["mkfs.erofs", "fsck.erofs", "dump.erofs"])?;
    fs::write(names.path("list"), "no image\n".repeat(1000)).unwrap();
    let date = "2001-02-03 04:05:06.5Z";
    names.tool(&[
        "find", "tree", "-exec", "touch", "-h", "-d", date, "{}", "+",
    ]);
    Some(names)
}

fn run(names: &Names, by: By, line: &str) -> Ran {
    let words: Vec<_> = line.split(' ').collect();
    let mut told = names.run(by, ".", &words);
    let program = names.path("bin").join(words[0]).display().to_string();
    told.stderr = told.stderr.replace(&program, words[0]);
    told
}

/// Extracts an image with Debian's program.
fn extracted(names: &Names, image: &str) -> BTreeMap<String, String> {
    extracted_by(names, By::Other, image)
}

/// Extracts an image. Omits link counts, which Debian's program does not restore.
fn extracted_by(names: &Names, by: By, image: &str) -> BTreeMap<String, String> {
    let out = names.path("unpacked");
    let _not_there = fs::remove_dir_all(&out);
    let told = run(names, by, &format!("fsck.erofs --extract=unpacked {image}"));
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    without_links(tree_of(&out))
}

fn without_links(tree: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let entries = tree.into_iter().map(|(name, text)| {
        let words = text.split(' ').enumerate();
        let words = words.filter(|(index, _)| *index != 4);
        let words: Vec<_> = words.map(|(_, word)| word).collect();
        // The owner's set-user-ID bit, which version 1.5 loses when it sets the owner.
        let text = words.join(" ").replace("104750 ", "100750 ");
        (name, text)
    });
    entries.collect()
}

#[test]
fn images_of_callers_have_the_same_tree() {
    let Some(names) = names() else {
        return;
    };
    for (caller, options) in MKFS {
        let line = format!("{options} OUT tree");
        let [other, mut ours] = BOTH.map(|by| {
            let _not_there = fs::remove_file(names.path("OUT"));
            let told = run(&names, by, &line);
            let tree = extracted(&names, "OUT");
            (told.code, told.stdout.is_empty(), tree)
        });
        if options.contains("--ignore-mtime") {
            // The time of the run.
            for (name, text) in &mut ours.2 {
                let time = |text: &str| text.split(' ').nth(3).map(str::to_string);
                let (old, new) = (time(text), time(&other.2[name]));
                if let (Some(old), Some(new)) = (old, new) {
                    let apart = |time: &str| time.parse::<i64>().unwrap_or(0);
                    assert!(
                        (apart(&old) - apart(&new)).abs() < 600,
                        "{caller}: {name} {text}"
                    );
                    *text = text.replace(&old, &new);
                }
            }
        }
        assert_eq!(other, ours, "{caller}: {line}");
        assert_eq!(ours.0, Some(0), "{caller}: {line}");
    }
}

#[test]
fn callers_of_newer_versions_get_the_same_tree() {
    let Some(names) = names() else {
        return;
    };
    for (caller, newer, older) in MKFS_NEWER {
        let [ours, other] = [(By::Forerun, newer), (By::Other, older)].map(|(by, options)| {
            let line = format!("mkfs.erofs {options} OUT tree").replace("  ", " ");
            let _not_there = fs::remove_file(names.path("OUT"));
            let told = run(&names, by, &line);
            assert_eq!(told.code, Some(0), "{caller}: {line}: {}", told.stderr);
            // 1.5 knows neither the newer codecs nor fragments.
            extracted_by(&names, by, "OUT")
        });
        assert_eq!(ours, other, "{caller}: {newer}");
    }
    let ran = run(
        &names,
        By::Forerun,
        "mkfs.erofs --hard-dereference --offset=8192 OUT tree",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let _not_there = fs::remove_dir_all(names.path("unpacked"));
    let ran = run(
        &names,
        By::Forerun,
        "fsck.erofs --offset=8192 --extract=unpacked OUT",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let links = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        names.path(name).metadata().unwrap().nlink()
    };
    assert_eq!(links("tree/usr/bin/tool"), 2);
    assert_eq!(links("unpacked/usr/bin/tool"), 1);
}

#[test]
fn mistakes_have_the_same_text_and_exit_code() {
    let Some(names) = names() else {
        return;
    };
    for (line, is_same) in MKFS_MISTAKES {
        let [other, ours] = BOTH.map(|by| run(&names, by, line));
        assert_eq!(
            (other.code, ours.code),
            (Some(1), Some(1)),
            "{line}: {}",
            ours.stderr
        );
        let first = |told: &Ran| told.stderr.lines().next().unwrap_or_default().to_string();
        assert!(
            !is_same || first(&other) == first(&ours),
            "{line}: {}",
            ours.stderr
        );
        assert!(
            !names
                .path("OUT")
                .metadata()
                .is_ok_and(|file| file.len() > 0),
            "{line}"
        );
        let _of_other = fs::remove_file(names.path("OUT"));
    }
    for line in [
        "mkfs.erofs -Ebogus OUT tree",
        "mkfs.erofs --tar=headerball OUT list",
        "mkfs.erofs --ovlfs-strip=1 OUT list",
        "mkfs.erofs --ovlfs-strip=1 OUT tree tree",
        "mkfs.erofs --file-contexts=x OUT tree",
    ] {
        assert_eq!(run(&names, By::Forerun, line).code, Some(1), "{line}");
    }
}

/// Calls the program as containerd's differ does: it looks for `--tar=` in the help, and writes a
/// layer to standard input.
#[test]
fn layers_become_images_with_the_whiteouts_of_overlayfs() {
    let Some(names) = names() else {
        return;
    };
    let help = run(&names, By::Forerun, "mkfs.erofs --help");
    assert_eq!(help.code, Some(0));
    assert!(help.text().contains("--tar="), "{}", help.text());
    fs::create_dir_all(names.path("layer/dir")).unwrap();
    for name in ["dir/.wh..wh..opq", "dir/.wh.gone", ".wh.old"] {
        fs::write(names.path("layer").join(name), "").unwrap();
    }
    fs::write(names.path("layer/dir/new"), "new\n").unwrap();
    names.tool(&["tar", "-C", "layer", "-cf", "layer.tar", "."]);
    let uuid = "12345678-1234-1234-1234-123456789abc";
    for (stdin, extra) in [
        ("layer.tar", ""),
        ("/dev/null", " layer.tar"),
        ("layer.tar", " --ungzip --ovlfs-strip=0"),
    ] {
        let line =
            format!("mkfs.erofs --tar=f --aufs --quiet -Enoinline_data -U {uuid} OUT{extra}");
        let words: Vec<_> = line.split(' ').collect();
        let mut command = names.command(By::Forerun, ".", &words);
        command.stdin(File::open(names.path(stdin)).unwrap());
        let told = ran(command.output().unwrap());
        assert_eq!(
            (told.code, told.text(), told.stderr.as_str()),
            (Some(0), "", ""),
            "{line}"
        );
        let tree = extracted(&names, "OUT");
        let kinds: Vec<_> = tree
            .iter()
            .map(|(name, text)| (name.as_str(), &text[..2]))
            .collect();
        let expected = [
            ("", "40"),
            ("dir", "40"),
            ("dir/gone", "20"),
            ("dir/new", "10"),
            ("old", "20"),
        ];
        assert_eq!(kinds, expected);
        assert!(
            run(&names, By::Other, "dump.erofs -s OUT")
                .text()
                .contains(uuid)
        );
        let ours = Command::new(crate::common::command(&["--version"]).get_program())
            .args(["tar"])
            .arg(names.path("OUT"))
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&ours.stdout).contains("trusted.overlay.opaque=y"));
    }
    let line = "mkfs.erofs --tar=f --aufs --ovlfs-strip=1 --quiet OUT layer.tar";
    assert_eq!(run(&names, By::Forerun, line).code, Some(0));
    let stripped: Vec<_> = extracted(&names, "OUT").into_keys().collect();
    assert_eq!(stripped, ["", "dir", "dir/new"]);
}

/// Makes the archives `lower.tar` and `upper.tar` of two layers, and the tree `merged`.
fn plant_layers(names: &Names) {
    for dir in ["lower/dir", "upper/dir", "merged/dir"] {
        fs::create_dir_all(names.path(dir)).unwrap();
    }
    let big: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    for (name, text) in [
        ("lower/big", big.as_str()),
        ("lower/dir/kept", "kept"),
        ("lower/dir/replaced", "old"),
        ("lower/gone", "gone"),
        ("lower/empty", ""),
        ("upper/dir/replaced", "new"),
        ("upper/dir/added", "added"),
        ("upper/.wh.gone", ""),
        ("merged/big", big.as_str()),
        ("merged/dir/kept", "kept"),
        ("merged/dir/replaced", "new"),
        ("merged/dir/added", "added"),
        ("merged/empty", ""),
    ] {
        fs::write(names.path(name), text).unwrap();
    }
    for name in ["lower", "merged"] {
        fs::hard_link(
            names.path(name).join("big"),
            names.path(name).join("linked"),
        )
        .unwrap();
    }
    for layer in ["lower", "upper"] {
        names.tool(&["tar", "-C", layer, "-cf", &format!("{layer}.tar"), "."]);
    }
}

/// Runs forerun under the name of the program, which must succeed and print nothing.
fn makes(names: &Names, line: &str) {
    let told = run(names, By::Forerun, line);
    let shown = (told.code, told.text(), told.stderr.as_str());
    assert_eq!(shown, (Some(0), "", ""), "{line}");
}

/// Returns paths and contents below a directory.
fn contents(dir: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in tree_of(dir).into_keys() {
        let path = dir.join(&name);
        if path.is_file() {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

/// containerd appends the archive to the index, and mounts both as one image.
#[test]
fn an_index_refers_to_the_bytes_of_its_archive() {
    let Some(names) = names() else {
        return;
    };
    plant_layers(&names);
    let line = "mkfs.erofs --tar=i --aufs --quiet index.erofs";
    let words: Vec<_> = line.split(' ').collect();
    let mut command = names.command(By::Forerun, ".", &words);
    command.stdin(File::open(names.path("lower.tar")).unwrap());
    assert_eq!(ran(command.output().unwrap()).code, Some(0));
    let index = fs::read(names.path("index.erofs")).unwrap();
    assert!(index.len() < 8192, "{}", index.len());
    let archive = fs::read(names.path("lower.tar")).unwrap();
    fs::write(names.path("whole.erofs"), [index, archive].concat()).unwrap();
    let expected = contents(&names.path("lower"));
    for (device, image) in [
        ("--device=lower.tar", "index.erofs"),
        ("--force", "whole.erofs"),
    ] {
        let line = format!("fsck.erofs {device} --extract=out-{image} {image}");
        let told = run(&names, By::Forerun, &line);
        assert_eq!(told.code, Some(0), "{line}: {}", told.stderr);
        assert_eq!(contents(&names.path(&format!("out-{image}"))), expected);
    }
    let told = run(&names, By::Forerun, "fsck.erofs --extract index.erofs");
    assert!(told.stderr.contains("device 1"), "{}", told.stderr);
    if require::kernel_filesystem("erofs") {
        fs::create_dir(names.path("mnt")).unwrap();
        names.tool(&[
            "mount",
            "-t",
            "erofs",
            "-o",
            "loop,ro",
            "whole.erofs",
            "mnt",
        ]);
        let read = std::panic::catch_unwind(|| contents(&names.path("mnt")));
        assert!(forerun_testkit::unmount(&names.path("mnt")));
        assert_eq!(read.unwrap(), expected);
    }
    names.tool(&["gzip", "-k", "lower.tar"]);
    let line = "mkfs.erofs --tar=i --quiet OUT lower.tar.gz";
    let told = run(&names, By::Forerun, line);
    assert_eq!(told.code, Some(1));
    assert!(
        told.stderr.contains("its data is compressed"),
        "{}",
        told.stderr
    );
}

#[test]
fn layers_are_merged_into_an_image_that_refers_to_them() {
    let Some(names) = names() else {
        return;
    };
    plant_layers(&names);
    for layer in ["lower", "upper"] {
        let line = "mkfs.erofs --aufs --quiet -Enoinline_data";
        makes(&names, &format!("{line} --tar=f {layer}.erofs {layer}.tar"));
        makes(&names, &format!("{line} --tar=i {layer}.index {layer}.tar"));
    }
    let expected = contents(&names.path("merged"));
    for (number, (layers, devices, judges)) in [
        (
            "lower.erofs upper.erofs",
            "--device=lower.erofs --device=upper.erofs",
            &BOTH[..],
        ),
        // 1.5 does not read blocks of 512 bytes.
        (
            "lower.index upper.index",
            "--device=lower.tar --device=upper.tar",
            &[By::Forerun],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        makes(
            &names,
            &format!("mkfs.erofs --aufs --ovlfs-strip=1 --quiet OUT {layers}"),
        );
        assert!(names.path("OUT").metadata().unwrap().len() <= 4096);
        for by in judges {
            let out = format!("out{number}{by:?}");
            let line = format!("fsck.erofs {devices} --extract={out} OUT");
            let told = run(&names, *by, &line);
            assert_eq!(told.code, Some(0), "{line}: {}", told.stderr);
            assert_eq!(contents(&names.path(&out)), expected, "{line}");
        }
    }
    makes(&names, "mkfs.erofs --quiet -zlz4 packed.erofs merged");
    for (layers, reason) in [
        ("packed.erofs", "its data is compressed"),
        ("lower.erofs lower.index", "with and without a device"),
        ("lower.erofs lower.tar", "not an erofs image"),
        ("lower.erofs none", "none"),
    ] {
        let line = format!("mkfs.erofs --ovlfs-strip=1 --quiet OUT2 {layers}");
        let told = run(&names, By::Forerun, &line);
        assert_eq!(told.code, Some(1), "{line}");
        assert!(told.stderr.contains(reason), "{line}: {}", told.stderr);
        assert!(!names.path("OUT2").exists(), "{line}");
    }
}

#[test]
fn images_are_described_in_the_same_words() {
    let Some(names) = names() else {
        return;
    };
    let various: String = (0..20_000).map(|number| format!("{number}\n")).collect();
    fs::write(names.path("tree/usr/bin/various"), various).unwrap();
    for (name, len) in [("a.txt", 1500), ("b.so", 70_000), ("c.xml", 3)] {
        fs::write(names.path("tree").join(name), vec![b'x'; len]).unwrap();
    }
    names.tool(&["mkfs.erofs", "plain.erofs", "tree"]);
    names.tool(&["mkfs.erofs", "-zlz4hc", "-C16384", "packed.erofs", "tree"]);
    for line in DUMP {
        let [other, ours] = BOTH.map(|by| run(&names, by, line));
        assert_eq!(ours.code, other.code, "{line}: {}", ours.stderr);
        assert_eq!(ours.text(), other.text(), "{line}");
    }
    fs::create_dir(names.path("full")).unwrap();
    fs::write(names.path("full/app.desktop"), "").unwrap();
    for line in FSCK {
        let [other, ours] = BOTH.map(|by| {
            let _not_there = fs::remove_dir_all(names.path("out"));
            let told = run(&names, by, line);
            let tree = names
                .path("out")
                .exists()
                .then(|| without_links(tree_of(&names.path("out"))));
            (told.code, told.stdout, tree)
        });
        assert_eq!(ours, other, "{line}");
    }
    let bytes = fs::read(names.path("plain.erofs")).unwrap();
    fs::write(names.path("cut.erofs"), &bytes[..8192]).unwrap();
    let [other, ours] = BOTH.map(|by| {
        let _not_there = fs::remove_dir_all(names.path("cut"));
        run(&names, by, "fsck.erofs --extract=cut cut.erofs")
    });
    assert_eq!(
        (other.code, ours.code),
        (Some(1), Some(1)),
        "{}",
        ours.stderr
    );
    assert!(
        ours.stderr
            .ends_with("<E> erofs: Failed to extract filesystem\n"),
        "{}",
        ours.stderr
    );
}

#[test]
fn erofsfuse_mounts() {
    let Some(names) = names() else {
        return;
    };
    if !require::fuse() {
        return;
    }
    let program = command(&["--version"]);
    std::os::unix::fs::symlink(program.get_program(), names.path("bin/erofsfuse")).unwrap();
    names.tool(&["mkfs.erofs", "plain.erofs", "tree"]);
    let image = fs::read(names.path("plain.erofs")).unwrap();
    fs::write(names.path("behind"), [vec![0; 4096], image].concat()).unwrap();
    fs::create_dir(names.path("mnt")).unwrap();
    for line in [
        "erofsfuse plain.erofs mnt",
        "erofsfuse --offset=4096 --dbglevel=1 -o ro behind mnt",
    ] {
        let told = run(&names, By::Forerun, line);
        assert_eq!(told.code, Some(0), "{line}: {}", told.stderr);
        assert!(is_mounted(&names.path("mnt")), "{line}");
        let read = fs::read(names.path("mnt/etc/passwd")).unwrap();
        assert_eq!(read, b"root:x:0:0\n");
        // Programs that examine all mounts keep it busy for moments.
        assert!(forerun_testkit::unmount(&names.path("mnt")));
    }
    for (line, code) in [
        ("erofsfuse none mnt", 1),
        ("erofsfuse list mnt", 1),
        ("erofsfuse plain.erofs", 1),
        ("erofsfuse -o bogus plain.erofs mnt", 1),
        ("erofsfuse --help", 0),
    ] {
        assert_eq!(run(&names, By::Forerun, line).code, Some(code), "{line}");
    }
}

/// Returns the words about a file's extents that both programs print.
fn extents(names: &Names, by: By, image: &str, file: &str) -> (Option<u8>, String) {
    let line = format!("dump.erofs -e --path={file} {image}");
    let told = run(names, by, &line);
    (
        told.code.and_then(|code| u8::try_from(code).ok()),
        told.text().to_string(),
    )
}

#[test]
fn extents_of_every_layout_are_those_of_the_other_program() {
    let Some(names) = names() else {
        return;
    };
    let files = names.path("files");
    fs::create_dir(&files).unwrap();
    let noise = |len: u32| -> Vec<u8> {
        let mut state = 7_u32;
        let next = move |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        (0..len).map(next).collect()
    };
    let text: String = (0..9000)
        .map(|n| format!("line {n} of the text\n"))
        .collect();
    let mixed = [noise(8192), vec![0; 8192], noise(3000)].concat();
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("tiny", b"hi".to_vec()),
        ("zeros", vec![0; 20_000]),
        ("noise", noise(5000)),
        ("blocks", noise(8192)),
        ("text", text.into_bytes()),
        ("mixed", mixed),
    ] {
        fs::write(files.join(name), bytes).unwrap();
    }
    std::os::unix::fs::symlink("text", files.join("link")).unwrap();
    let mut compared = 0;
    for options in [
        "",
        "-Enoinline_data",
        "--chunksize=4096",
        "--chunksize=65536",
        "-zlz4",
        "-zlz4 -Elegacy-compress",
        "-zlz4hc -C65536",
        "-zlz4 -Eztailpacking",
    ] {
        let line = format!("mkfs.erofs --quiet {options} OUT files");
        let words: Vec<_> = line.split(' ').filter(|word| !word.is_empty()).collect();
        names.tool(&words);
        for file in [
            "empty", "tiny", "zeros", "noise", "blocks", "text", "mixed", "link", "",
        ] {
            let [other, ours] = BOTH.map(|by| extents(&names, by, "OUT", &format!("/{file}")));
            assert_eq!(other, ours, "{options}: /{file}");
            compared += 1;
        }
        // Version 1.5 does not name this feature.
        let described = BOTH.map(|by| {
            run(&names, by, "dump.erofs -s -S OUT")
                .text()
                .replace("ztailpacking ", "")
        });
        assert_eq!(described[0], described[1], "{options}");
    }
    assert_eq!(compared, 8 * 9);
    // The files have holes, because their contents are objects.
    let pack = [
        "pack",
        "-q",
        "--format",
        "composefs",
        "--objects",
        "store",
        "files",
        "OUT.cfs",
    ];
    ran(command(&pack)
        .current_dir(names.path("."))
        .output()
        .unwrap())
    .ok();
    for file in ["text", "mixed", "tiny"] {
        let [other, ours] = BOTH.map(|by| extents(&names, by, "OUT.cfs", &format!("/{file}")));
        assert_eq!(other, ours, "/{file}");
    }
    let checked = run(&names, By::Forerun, "fsck.erofs OUT.cfs");
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}
