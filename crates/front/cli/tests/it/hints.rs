//! Hints are correct: each test follows the hint it was given.

use std::fs;
use std::process::Command;

use forerun_testkit::require;
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy};

use crate::common::place::{Place, noise};
use crate::common::{Fixture, Ran, command, ran};
use crate::containers::{STORE, make_layers, run};

/// Returns the hint of a command that failed with `code`. It must be the only one, in the last
/// line.
#[track_caller]
fn hint(told: &Ran, code: i32) -> &str {
    assert_eq!(told.code, Some(code), "{}", told.stderr);
    let hints = told
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("  hint: "));
    let hints: Vec<_> = hints.collect();
    let [hint] = hints[..] else {
        panic!("{}", told.stderr);
    };
    hint
}

/// Returns a disk with one MBR partition at 1 MiB.
pub fn disk_of(partition: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    disk.extend_from_slice(partition);
    disk.resize(disk.len().next_multiple_of(512), 0);
    let sectors = u32::try_from(disk.len() / 512 - 2048).unwrap();
    let entry = [
        &[0, 0, 0, 0, 0x83, 0, 0, 0][..],
        &2048_u32.to_le_bytes(),
        &sectors.to_le_bytes(),
    ];
    disk[0x1be..0x1ce].copy_from_slice(&entry.concat());
    disk[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[test]
fn a_disk_hints_at_its_partitions() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    fs::write(fixture.path("disk.img"), disk_of(&image)).unwrap();
    let told = fixture.run(&["ls", "disk.img"]);
    let expected = "forerun: disk.img: not an image of a known format: a partition table\n  hint: \
                    --partition N opens one of its partitions: 1 (Linux, 2.9 MiB at 1048576); forerun scan disk.img lists what is in them";
    told.fails(3, expected);
    let listed = fixture.run(&["ls", "--partition", "1", "disk.img"]).ok();
    let names = String::from_utf8_lossy(&listed.stdout);
    assert!(names.contains("etc"), "{names}");
    let mounted = fixture.run(&["mount", "disk.img", "tree/etc/empty"]);
    assert!(hint(&mounted, 3).starts_with("--partition N"));
}

#[test]
fn a_file_with_an_image_inside_hints_at_scan() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    let firmware = [&vec![0xff; 1 << 16][..], &image].concat();
    fs::write(fixture.path("firmware.bin"), firmware).unwrap();
    let told = fixture.run(&["ls", "firmware.bin"]);
    assert_eq!(
        hint(&told, 3),
        "forerun scan firmware.bin lists what is inside it"
    );
    let scanned = fixture.run(&["scan", "firmware.bin"]).ok();
    assert!(
        scanned.text().contains("--offset 65536"),
        "{}",
        scanned.text()
    );
    fixture
        .run(&["ls", "--offset", "65536", "firmware.bin"])
        .ok();
}

#[test]
fn every_command_that_opens_an_image_hints_at_scan() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    let firmware = [&vec![7; 1 << 16][..], &image].concat();
    fs::write(fixture.path("firmware.bin"), firmware).unwrap();
    fs::write(fixture.path("disk.img"), disk_of(&image)).unwrap();
    fs::create_dir(fixture.path("mnt")).unwrap();
    for file in ["firmware.bin", "disk.img"] {
        for args in [
            &["ls", file][..],
            &["info", file],
            &["cat", file, "/a"],
            &["dump", file],
            &["check", file],
            &["map", file],
            &["extract", "-C", "out", file],
            &["tar", "-o", "out.tar", file],
            &["convert", file, "out.sqsh"],
            &["mount", file, "mnt"],
        ] {
            let told = fixture.run(args);
            let hint = hint(&told, 3);
            let scan = format!("forerun scan {file} lists what is in");
            assert!(hint.contains(&scan), "{args:?}: {hint}");
        }
        let scanned = fixture.run(&["scan", file]).ok();
        let text = scanned.text();
        let command = text
            .lines()
            .find_map(|line| line.strip_prefix("    forerun "))
            .unwrap();
        let args: Vec<_> = command.split(' ').collect();
        fixture.run(&args).ok();
    }
}

#[test]
fn names_of_other_programs_hint_at_ours() {
    let fixture = Fixture::tree();
    for (args, expected) in [
        (
            &["ls", "docker://alpine:3"][..],
            "an image in a registry is named oci://docker.io/alpine:3",
        ),
        (
            &["info", "localhost:1/a"],
            "an image in a registry is named oci://localhost:1/a",
        ),
        (
            &["mount", "ghcr.io/a/b", "tree/etc/empty"],
            "an image in a registry is named oci://ghcr.io/a/b",
        ),
        (
            &["run", "alpine:3.19", "--", "sh"],
            "an image in a registry is named oci://docker.io/alpine:3.19",
        ),
        (
            &["push", "tree/big", "localhost:1/a"],
            "an image in a registry is named oci://localhost:1/a",
        ),
        (
            &["push", "oci-layout:dir:v1", "oci://localhost:1/a:v1"],
            "skopeo copy oci:dir:v1 docker://localhost:1/a:v1 copies a container image",
        ),
        (
            &["ls", "oci:dir"],
            "an OCI layout on disk is oci-layout:dir",
        ),
    ] {
        let told = fixture.run(args);
        let code = told.code.unwrap();
        assert!([2, 4].contains(&code), "{args:?}: {}", told.stderr);
        assert_eq!(hint(&told, code), expected, "{args:?}");
    }
}

#[test]
fn a_run_without_the_fuse_device_names_it() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    if !require::root() {
        return;
    }
    let forerun = command(&["run", "a.img", "--", "/bin/tool"]);
    let run = |script: &str| {
        let mut unshared = Command::new("unshare");
        unshared
            .args(["--mount", "sh", "-c", script])
            .arg(forerun.get_program())
            .args(forerun.get_args())
            .current_dir(fixture.dir.path());
        ran(unshared.output().unwrap())
    };
    let told =
        run("mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$0\" \"$@\"");
    assert!(
        told.stderr
            .contains("opening /dev/fuse: No such file or directory"),
        "{}",
        told.stderr
    );
    assert!(hint(&told, 7).contains("modprobe fuse"));
    fs::set_permissions(
        fixture.dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let told = run(
        "touch closed && chmod 600 closed && mount --bind closed /dev/fuse && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups -- \"$0\" \"$@\"",
    );
    assert!(
        hint(&told, 7).contains("may not use FUSE"),
        "{}",
        told.stderr
    );
}

#[test]
fn a_slow_server_hints_at_a_longer_wait() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    proxy.faults(|request| (request.range.is_some() && request.number > 1).then_some(Fault::Stall));
    let url = format!("{}/image", proxy.url());
    let args = ["cat", "--timeout", "1", "--retries", "0", &url, "big"];
    let told = place.run(&args);
    assert_eq!(
        hint(&told, 4),
        "--timeout SECONDS waits longer for a slow server"
    );
    assert!(
        told.stderr.contains("the server sent nothing for"),
        "{}",
        told.stderr
    );
    proxy.faults(|_| None);
    place.run(&["cat", "--timeout", "30", &url, "big"]).ok();
}

#[test]
fn a_full_cache_hints_at_another_place() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    if !require::root() {
        return;
    }
    let forerun = command(&[
        "cat",
        "--cache-limit",
        "none",
        "--cache-dir",
        "small",
        &nginx.url_of("image"),
        "sub/other",
    ]);
    let script = "mkdir small && mount -t tmpfs -o size=1m none small && chmod 700 small && exec \"$0\" \"$@\"";
    let mut unshared = Command::new("unshare");
    unshared
        .args(["--mount", "sh", "-c", script])
        .arg(forerun.get_program())
        .args(forerun.get_args())
        .current_dir(place.dir.path());
    let told = ran(unshared.output().unwrap());
    let expected =
        "free space with forerun cache gc --to BYTES, or use another directory: --cache-dir DIR";
    assert_eq!(hint(&told, 4), expected, "{}", told.stderr);
    let elsewhere = [
        "cat",
        "--cache-dir",
        "large",
        &nginx.url_of("image"),
        "small",
    ];
    place.run(&elsewhere).ok();
}

#[test]
fn a_window_that_is_too_large_hints_at_decompressing_first() {
    let programs = ["tar", "zstd", "xz"];
    if !programs.iter().all(|name| require::program(name).is_some()) {
        return;
    }
    let place = Place::new();
    fs::write(place.path("file"), noise(100_000)).unwrap();
    let shell = |script: &str| {
        let ran = ran(Command::new("sh")
            .args(["-ec", script])
            .current_dir(place.path("."))
            .output()
            .unwrap());
        assert_eq!(ran.code, Some(0), "{script}: {}", ran.stderr);
    };
    shell("tar -cf a.tar file");
    for (compress, name, decompress, needs) in [
        (
            "zstd -q --long=28",
            "a.tar.zst",
            "zstd -dcq --long=31",
            128 << 20,
        ),
        (
            "xz --lzma2=dict=96MiB,mode=fast,mf=hc3",
            "a.tar.xz",
            "xz -dc",
            80 << 20,
        ),
    ] {
        shell(&format!("{compress} <a.tar >{name}"));
        let told = place.run(&["ls", name]);
        let hint = hint(&told, 1);
        assert!(
            hint.contains(decompress.split(' ').next().unwrap()),
            "{hint}"
        );
        let format = name.rsplit('.').next().unwrap().replace("zst", "zstd");
        let expected = format!(
            "forerun: {name}: the decoder's memory for the {format} stream at 0x0 exceeds the limit of {needs}\n"
        );
        assert!(told.stderr.starts_with(&expected), "{}", told.stderr);
        shell(&format!("{decompress} {name} >b.tar"));
        assert_eq!(place.run(&["ls", "b.tar"]).ok().text(), "file\n");
    }
}

#[test]
fn images_that_fit_equally_are_listed_by_names_that_choose_one() {
    if require::program("python3").is_none() || require::program("zstd").is_none() {
        return;
    }
    let place = Place::new();
    make_layers(&place);
    assert!(run("python3", &["-c", STORE, "disk"], &place.path(".")));
    // A second image without the topmost layer, in the layout and in the archive of `docker save`.
    let second = "import hashlib, json, tarfile
index = json.load(open('layout/index.json'))
first = index['manifests'][0]
del first['annotations']
manifest = json.load(open('layout/blobs/sha256/' + first['digest'][7:]))
manifest['layers'].pop()
data = json.dumps(manifest).encode()
digest = hashlib.sha256(data).hexdigest()
open('layout/blobs/sha256/' + digest, 'wb').write(data)
index['manifests'].append({**first, 'digest': 'sha256:' + digest, 'size': len(data)})
json.dump(index, open('layout/index.json', 'w'))
saved = json.load(open('saved/manifest.json'))
json.dump(saved + [{**saved[0], 'RepoTags': ['other:1']}], open('saved/manifest.json', 'w'))
with tarfile.open('saved.tar', 'w') as archive:
    archive.add('saved', '.')
";
    assert!(run("python3", &["-c", second], &place.path(".")));
    let told = place.run(&["ls", "oci-layout:layout"]);
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    assert!(
        told.stderr.contains("give the digest of one: "),
        "{}",
        told.stderr
    );
    let words = told.stderr.split([' ', ',', '\n']);
    let digests: Vec<_> = words.filter(|word| word.starts_with("sha256:")).collect();
    let [first, second] = digests[..] else {
        panic!("{}", told.stderr);
    };
    let list = |digest| {
        place
            .run(&["ls", &format!("oci-layout:layout:{digest}")])
            .ok()
    };
    assert_eq!(list(first).text(), "bin\netc\nlib\n");
    assert_eq!(list(second).text(), "etc\nlib\n");

    let told = place.run(&["ls", "docker-archive:saved.tar"]);
    let expected = "it has several images: name one of app:1, other:1";
    assert!(told.stderr.contains(expected), "{}", told.stderr);
    let listed = place.run(&["ls", "docker-archive:saved.tar:other:1"]).ok();
    assert_eq!(listed.text(), "bin\netc\nlib\n");
}

#[test]
fn info_calls_only_the_length_of_the_file_its_size() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    fs::write(fixture.path("tail.img"), [&image[..], &[0; 4096]].concat()).unwrap();
    let told = fixture.run(&["info", "tail.img"]).ok();
    assert!(told.text().contains("file size "), "{}", told.text());
    let firmware = [&vec![0; 1 << 16][..], &image, &[0; 4096]].concat();
    fs::write(fixture.path("firmware.bin"), firmware).unwrap();
    let told = fixture
        .run(&["info", "--offset", "64K", "firmware.bin"])
        .ok();
    assert!(!told.text().contains("file size"), "{}", told.text());
    assert!(told.text().contains("room "), "{}", told.text());
}

/// Returns a SIF file whose root filesystem is `image`, with an overlay partition of 4 KiB.
fn sif_with_overlay(image: &[u8]) -> Vec<u8> {
    const DESCRIPTOR: usize = 585;
    let mut sif = vec![0; 8192];
    let mut put = |at: usize, bytes: &[u8]| sif[at..at + bytes.len()].copy_from_slice(bytes);
    put(32, b"SIF_MAGIC\0");
    put(42, b"01\0");
    for (at, number) in [(88, 2), (96, 4096), (104, 2 * 585)] {
        put(at, &u64::to_le_bytes(number));
    }
    let len = u64::try_from(image.len()).unwrap();
    for (number, (filesystem, kind, offset, len)) in
        [(1_u32, 2_u32, 8192, len), (2, 4, 8192 + len, 4096)]
            .into_iter()
            .enumerate()
    {
        let at = 4096 + number * DESCRIPTOR;
        put(at, &0x4004_u32.to_le_bytes());
        put(at + 4, &[1]);
        put(at + 17, &u64::to_le_bytes(offset));
        put(at + 25, &u64::to_le_bytes(len));
        put(at + 201, &filesystem.to_le_bytes());
        put(at + 205, &kind.to_le_bytes());
    }
    [&sif[..], image, &[0; 4096]].concat()
}

#[test]
fn an_overlay_partition_that_is_not_read_is_told() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    fs::write(fixture.path("a.sif"), sif_with_overlay(&image)).unwrap();
    let listed = fixture.run(&["ls", "a.sif"]);
    assert_eq!(
        (listed.code, listed.stderr.as_str()),
        (
            Some(0),
            "forerun: warning: overlay partition 0 (of an unknown format) is not read, so what the container changed is missing\n"
        )
    );
}
