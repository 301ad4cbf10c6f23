//! `forerun scan`, and the partitions that it numbers.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use forerun_testkit::require;
use serde_json::Value;

use crate::common::{Fixture, Ran, big};

/// Packs the tree into an image of each format that needs no other program.
fn images(fixture: &Fixture) -> Vec<(&'static str, Vec<u8>)> {
    let formats = ["squashfs", "romfs", "erofs", "exfat"];
    let made = formats.map(|format| {
        let args = ["-q", "pack", "--format", format, "tree/etc", format];
        let ran = fixture.run(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        (format, fs::read(fixture.path(format)).unwrap())
    });
    made.into()
}

/// Returns offset, type and command of each finding, without what lies between.
fn found(ran: &Ran) -> Vec<(u64, String, Option<String>)> {
    let json = ran.json();
    let findings = json["findings"].as_array().unwrap().iter();
    let is_known = |it: &&Value| it["type"] != "unknown" && it["type"] != "padding";
    findings
        .filter(is_known)
        .map(|finding| {
            let kind = finding["type"].as_str().unwrap().to_string();
            let command = finding["command"].as_str().map(str::to_string);
            (finding["offset"].as_u64().unwrap(), kind, command)
        })
        .collect()
}

#[test]
fn images_at_odd_offsets_are_found_and_their_commands_work() {
    let fixture = Fixture::tree();
    let noise = big();
    let mut file = Vec::new();
    let mut expected = Vec::new();
    let images = images(&fixture);
    for (n, (format, image)) in images.iter().chain(images.first()).enumerate() {
        while file.len() < (n + 1) * (10 << 20) {
            file.extend_from_slice(&noise);
        }
        file.push(7);
        expected.push((file.len() as u64, (*format).to_string()));
        file.extend_from_slice(image);
    }
    file.resize(64 << 20, 7);
    fs::write(fixture.path("fw.bin"), &file).unwrap();
    let began = Instant::now();
    let ran = fixture.run(&["scan", "--json", "fw.bin"]).ok();
    assert!(began.elapsed() < Duration::from_secs(120));
    let findings = found(&ran);
    let places: Vec<_> = findings
        .iter()
        .map(|(at, kind, _)| (*at, kind.clone()))
        .collect();
    assert_eq!(places, expected);
    for (.., command) in findings {
        let command = command.unwrap();
        let args: Vec<_> = command.split(' ').skip(1).collect();
        assert!(
            fixture.run(&args).ok().text().contains("passwd"),
            "{command}"
        );
    }
    let table = fixture.run(&["scan", "fw.bin"]).ok();
    let offset = format!("forerun ls --offset {} fw.bin", expected[0].0);
    assert!(table.text().contains(&offset), "{}", table.text());
}

#[test]
fn nothing_found_is_exit_status_1() {
    let fixture = Fixture::tree();
    let message = "forerun: tree/big: nothing of a known kind was found";
    fixture.run(&["scan", "tree/big"]).fails(1, message);
    let ran = fixture.run(&["scan", "--json", "tree/big"]);
    assert_eq!((ran.code, found(&ran)), (Some(1), Vec::new()));
}

/// Makes a disk with an MBR: an exFAT volume in partition 2, and the rest in partition 5.
fn disk(fixture: &Fixture) {
    let args = [
        "-q",
        "pack",
        "--format",
        "exfat",
        "--volume-size",
        "+1M",
        "tree/etc",
        "exfat",
    ];
    assert_eq!(fixture.run(&args).code, Some(0));
    let image = fs::read(fixture.path("exfat")).unwrap();
    let sectors = u32::try_from(image.len() / 512).unwrap();
    let mut disk = vec![0; 2048 * 512];
    let entry = |disk: &mut [u8], at: usize, kind: u8, start: u32, sectors: u32| {
        disk[at + 4] = kind;
        disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    };
    entry(&mut disk, 446 + 16, 7, 2048, sectors);
    entry(&mut disk, 446 + 32, 5, 8, 100);
    entry(&mut disk, 8 * 512 + 446, 0x83, 1, 9);
    for at in [510, 8 * 512 + 510] {
        disk[at..at + 2].copy_from_slice(&[0x55, 0xaa]);
    }
    fs::write(fixture.path("disk.img"), [disk, image].concat()).unwrap();
}

#[test]
fn a_partition_is_named_by_its_number() {
    let fixture = Fixture::tree();
    disk(&fixture);
    let ran = fixture.run(&["scan", "--json", "disk.img"]).ok();
    let kinds: Vec<_> = found(&ran)
        .into_iter()
        .map(|(at, kind, _)| (at, kind))
        .collect();
    let expected = [
        (0, "mbr"),
        (4096, "partition"),
        (4608, "partition"),
        (1 << 20, "partition"),
        (1 << 20, "exfat"),
    ];
    assert_eq!(kinds, expected.map(|(at, kind)| (at, kind.to_string())));
    let command = found(&ran).pop().unwrap().2;
    assert_eq!(
        command.as_deref(),
        Some("forerun ls --partition 2 disk.img")
    );
    let ran = fixture.run(&["ls", "--partition=2", "disk.img"]).ok();
    assert!(ran.text().contains("passwd"));
    // Commands that change the volume, and one that reads a pipe.
    fixture
        .run(&["label", "--partition", "2", "disk.img", "CARD"])
        .ok();
    fixture
        .run(&["check", "--partition", "2", "disk.img", "-q"])
        .ok();
    fixture
        .run(&[
            "check",
            "--repair",
            "--yes",
            "-q",
            "--partition",
            "2",
            "disk.img",
        ])
        .ok();
    let piped = fixture.run_piped(
        &["-q", "label", "--partition", "2", "-"],
        fs::read(fixture.path("disk.img")).unwrap(),
    );
    assert_eq!(piped.ok().text(), "CARD\n");
}

#[test]
fn a_partition_that_is_not_there_is_refused_with_those_that_are() {
    let fixture = Fixture::tree();
    disk(&fixture);
    let ran = fixture.run(&["ls", "--partition", "3000", "disk.img"]);
    let listed = "2 (exFAT or NTFS, ";
    assert!(
        ran.stderr.contains("has no partition 3000; it has these:") && ran.stderr.contains(listed),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.code, Some(1));
    fixture.run(&["ls", "--partition", "1", "tree/big"]).fails(
        3,
        "forerun: tree/big: has no partition table\n  hint: forerun scan tree/big shows the offsets of images in it",
    );
    for other in ["--offset", "--size"] {
        let ran = fixture.run(&["ls", "--partition", "2", other, "512", "disk.img"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    }
}

#[test]
fn offsets_are_taken_as_errors_print_them() {
    let fixture = Fixture::tree();
    disk(&fixture);
    for offset in ["0x100000", "1M", "1048576", "0x400K"] {
        let ran = fixture.run(&["ls", "--offset", offset, "disk.img"]).ok();
        assert!(ran.text().contains("passwd"), "{offset}");
    }
}

#[test]
fn a_volume_without_its_boot_sector_is_said_to_be_repairable() {
    let fixture = Fixture::tree();
    disk(&fixture);
    let mut volume = fs::read(fixture.path("exfat")).unwrap();
    volume[..512].fill(0);
    fs::write(fixture.path("zeroed"), volume).unwrap();
    for args in [&["check", "zeroed"][..], &["ls", "zeroed"]] {
        let ran = fixture.run(args);
        let hint = "hint: its boot sector was overwritten, but the backup is intact: forerun check --repair zeroed repairs it";
        assert!(ran.stderr.contains(hint), "{}", ran.stderr);
        assert_eq!(ran.code, Some(3));
    }
    assert_eq!(
        fixture
            .run(&["check", "--repair", "--yes", "-q", "zeroed"])
            .code,
        Some(8)
    );
    fixture.run(&["ls", "zeroed"]).ok();
}

#[test]
fn the_hint_at_a_repair_says_where_the_volume_is() {
    let fixture = Fixture::tree();
    disk(&fixture);
    let mut whole = fs::read(fixture.path("disk.img")).unwrap();
    let size = whole.len() - (1 << 20);
    whole[1 << 20..][..512].fill(0);
    fs::write(fixture.path("zeroed"), whole).unwrap();
    let place = format!("--offset 1048576 --size {size}");
    for (asked, place) in [
        (&["--offset", "1M"][..], "--offset 1048576"),
        (&["--partition", "2"], &place),
    ] {
        let told = fixture.run(&[&["ls"], asked, &["zeroed"]].concat());
        let hint = format!("forerun check --repair {place} zeroed repairs it");
        assert!(told.stderr.contains(&hint), "{}", told.stderr);
    }
    let repair = [
        "check", "-q", "--repair", "--yes", "--offset", "1048576", "zeroed",
    ];
    assert_eq!(fixture.run(&repair).code, Some(8));
    fixture.run(&["ls", "--offset", "1M", "zeroed"]).ok();
}

/// Makes files of kinds that forerun does not open. Each is made by a line of the shell, into `out`, and has the length
/// of that file but for the bytes given last.
const MADE: &[(&str, &str, u64)] = &[
    ("ext", "truncate -s 4M out && mkfs.ext4 -q -L rootfs out", 0),
    ("fat", "truncate -s 2M out && mkfs.vfat out", 0),
    ("iso9660", "genisoimage -quiet -no-pad -o out tree", 0),
    ("swap", "truncate -s 1M out && mkswap out", 0),
    ("f2fs", "truncate -s 64M out && mkfs.f2fs -q out", 0),
    ("btrfs", "truncate -s 128M out && mkfs.btrfs -q out", 0),
    ("jffs2", "mkfs.jffs2 -r tree -e 64KiB -o out", 0),
    (
        "ubifs",
        "mkfs.ubifs -r tree -m 2048 -e 126976 -c 100 -o out",
        0,
    ),
    (
        "verity",
        "truncate -s 2M data && veritysetup format data out",
        0,
    ),
    ("cpio", "find tree -print0 | cpio -0 -o -H newc >out", 0),
    ("cpio", "find tree -print0 | cpio -0 -o -H odc >out", 0),
    ("zip", "zip -q -r out.zip tree && mv out.zip out", 0),
    ("zip", "tar c tree | zip -q - - >out", 0),
    ("7z", "7z a -bso0 out.7z tree && mv out.7z out", 0),
    ("ar", "ar rc out words numbers", 0),
    ("gzip", "gzip -c words >out && gzip -c numbers >>out", 0),
    ("xz", "xz -c words >out", 0),
    ("zstd", "zstd -q -c words >out", 0),
    ("bzip2", "bzip2 -c words >out", 0),
    ("lzma", "lzma -c words >out", 0),
    ("lz4", "lz4 -q -c words >out", 0),
    ("lzop", "lzop -c words >out", 0),
    (
        "dtb",
        "echo '/dts-v1/; / { model=\"Board\"; };' | dtc -q -O dtb >out",
        0,
    ),
    (
        "uimage",
        "mkimage -A arm -O linux -T kernel -C none -n name -d words out",
        0,
    ),
    ("elf", "cp /proc/self/exe out", 0),
    ("pem", "openssl genrsa -out out 2048", 0),
    (
        "private-key",
        "openssl genrsa 2048 | openssl pkcs8 -topk8 -nocrypt -outform der -out out",
        0,
    ),
    (
        "certificate",
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -outform der -out out -subj /CN=name",
        0,
    ),
];

#[test]
fn what_other_tools_make_is_listed_with_kind_and_length() {
    let fixture = Fixture::tree();
    let noise = big();
    fs::write(
        fixture.path("words"),
        noise
            .iter()
            .map(|byte| byte % 20 + b'a')
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let numbers: String = (0..9000).map(|n| format!("{n}\n")).collect();
    fs::write(fixture.path("numbers"), numbers).unwrap();
    for (kind, line, behind) in MADE {
        let program = line.split(['|', '&', ' ']).find(|word| {
            !["truncate", "echo", "find", "tar", "cp", "", "-s"].contains(word)
                && require::find_program(word).is_some()
        });
        let _ = fs::remove_file(fixture.path("out"));
        let ran = Command::new("sh")
            .args(["-c", line])
            .current_dir(fixture.dir.path())
            .output()
            .unwrap();
        if !ran.status.success() {
            assert!(
                !require::in_ci(),
                "{line}: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
            eprintln!("SKIPPED: {line} ({program:?})");
            continue;
        }
        let made = fs::read(fixture.path("out")).unwrap();
        fs::write(
            fixture.path("fw"),
            [&noise[..10_001], &made, &noise[..5000]].concat(),
        )
        .unwrap();
        let json = fixture.run(&["scan", "--json", "fw"]).ok().json();
        let findings = json["findings"].as_array().unwrap();
        let finding = findings
            .iter()
            .find(|it| it["type"] == *kind && it["offset"] == 10_001);
        let finding = finding.unwrap_or_else(|| panic!("{line}: {json}"));
        let len = made.len() as u64 - behind;
        let size = finding["size"].as_u64().unwrap();
        assert!(
            size <= len && len - size < 512,
            "{line}: {size} of {len}: {finding}"
        );
        assert_eq!(finding["truncated"], false, "{finding}");
        let named = match *kind {
            "ext" => ("label", "rootfs"),
            "uimage" | "certificate" => ("label", "name"),
            "dtb" => ("label", "Board"),
            _ => ("type", *kind),
        };
        assert_eq!(finding[named.0], named.1, "{finding}");
    }
}

#[test]
fn an_image_that_is_cut_is_listed_with_the_command_that_reads_the_rest() {
    let fixture = Fixture::tree();
    for (format, tree) in [
        ("squashfs", "tree/etc"),
        ("romfs", "tree/etc"),
        ("exfat", "tree/etc"),
        // Its checksum covers the first block.
        ("erofs", "tree"),
    ] {
        fixture
            .run(&["-q", "pack", "--format", format, tree, format])
            .ok();
        let image = fs::read(fixture.path(format)).unwrap();
        let whole = fixture.run(&["scan", "--json", format]).ok().json();
        let size = whole["findings"][0]["size"].as_u64().unwrap() as usize;
        let cut = &image[..size - 1];
        fs::write(fixture.path("cut"), [&[7; 512][..], cut].concat()).unwrap();
        let json = fixture.run(&["scan", "--json", "cut"]).ok().json();
        let finding = &json["findings"][1];
        assert_eq!(finding["type"], format, "{json}");
        assert_eq!(finding["truncated"], true, "{finding}");
        assert_eq!(finding["size"], size - 1);
        let command = finding["command"].as_str().unwrap();
        if format == "squashfs" {
            let args: Vec<_> = command.split(' ').skip(1).collect();
            assert!(fixture.run(&args).text().contains("passwd"), "{command}");
        }
    }
}

/// Writes a firmware file: bytes of no kind, a SquashFS image with an image and a stream in it, compressed, and a key.
fn firmware(fixture: &Fixture) -> Option<Vec<u8>> {
    let run = |line: &str| {
        let done = Command::new("sh")
            .args(["-c", line])
            .current_dir(fixture.dir.path())
            .status();
        assert!(done.unwrap().success(), "{line}");
    };
    let _gzip = require::program("gzip")?;
    for args in [
        &[
            "-q",
            "pack",
            "--format",
            "romfs",
            "tree/etc",
            "tree/inner.img",
        ][..],
        &["-q", "pack", "tree", "root.sqsh"],
    ] {
        fixture.run(args).ok();
    }
    run("gzip -nc root.sqsh >root.gz");
    let key = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        "A".repeat(64)
    );
    let read = |name| fs::read(fixture.path(name)).unwrap();
    let file = [
        &big()[..9001],
        &read("root.gz"),
        &[0xff; 5000],
        key.as_bytes(),
        &read("root.sqsh"),
    ]
    .concat();
    fs::write(fixture.path("fw"), &file).unwrap();
    Some(file)
}

#[test]
fn a_tree_goes_into_streams_and_images() {
    let fixture = Fixture::tree();
    if firmware(&fixture).is_none() {
        return;
    }
    let json = fixture.run(&["scan", "--json", "--tree", "fw"]).ok().json();
    let stream = &json["findings"][1];
    assert_eq!(
        (&stream["type"], &stream["offset"]),
        (&"gzip".into(), &9001.into())
    );
    let image = &stream["contents"][0]["findings"][0];
    assert_eq!(image["type"], "squashfs", "{stream}");
    let files = image["contents"].as_array().unwrap();
    let inner = files
        .iter()
        .find(|file| file["path"] == "/inner.img")
        .unwrap();
    assert_eq!(inner["findings"][0]["type"], "romfs");
    let text = fixture.run(&["scan", "--tree", "fw"]).ok();
    assert!(text.text().contains("/inner.img\n"), "{}", text.text());
    let flat = fixture.run(&["scan", "--json", "fw"]).ok().json();
    assert_eq!(flat["findings"][1]["contents"], Value::Array(Vec::new()));
    assert_eq!(flat["complete"], true);
}

#[test]
fn an_extraction_writes_trees_and_files_and_a_report() {
    let fixture = Fixture::tree();
    let Some(file) = firmware(&fixture) else {
        return;
    };
    fixture
        .run(&["scan", "--tree", "--extract", "out", "fw"])
        .ok();
    let report = fs::read(fixture.path("out/report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let mut kinds = Vec::new();
    for finding in findings {
        let kind = finding["type"].as_str().unwrap();
        let Some(written) = finding["extracted"].as_str() else {
            assert_eq!(kind, "padding");
            continue;
        };
        kinds.push(kind);
        let path = fixture.path("out").join(written);
        if kind == "squashfs" {
            let same = Command::new("diff")
                .arg("-r")
                .arg(fixture.path("tree"))
                .arg(path)
                .status();
            assert!(same.unwrap().success());
            continue;
        }
        let at = finding["offset"].as_u64().unwrap() as usize;
        let len = finding["size"].as_u64().unwrap() as usize;
        assert_eq!(fs::read(path).unwrap(), file[at..at + len], "{kind}");
    }
    assert_eq!(kinds[..4], ["unknown", "gzip", "pem", "squashfs"]);
    let inner = &findings[1]["contents"][0]["findings"][0]["extracted"];
    let inner = fixture.path("out").join(inner.as_str().unwrap());
    assert!(inner.join("etc/passwd").exists(), "{inner:?}");
    // Nothing is overwritten.
    let again = fixture.run(&["scan", "--extract", "out", "fw"]);
    assert_ne!(again.code, Some(0));
}

#[test]
fn an_extraction_of_findings_that_overlap_is_bounded() {
    let fixture = Fixture::tree();
    // A boot sector of FAT that claims all that follows.
    let mut sector = vec![1; 512];
    sector[..3].copy_from_slice(b"\xeb\x3c\x90");
    sector[11..24].copy_from_slice(b"\x00\x02\x01\x01\x00\x02\x00\x02\x00\x00\xf8\x01\x00");
    sector[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    sector[0x36..0x3e].copy_from_slice(b"FAT16   ");
    sector[510..].copy_from_slice(b"\x55\xaa");
    fs::write(fixture.path("fw"), sector.repeat(64)).unwrap();
    let ran = fixture.run(&["scan", "--extract", "out", "fw"]);
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(ran.stderr.contains("findings overlap"), "{}", ran.stderr);
    let files = fs::read_dir(fixture.path("out")).unwrap();
    let files = files.map(|entry| entry.unwrap().metadata().unwrap());
    let written: u64 = files
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum();
    assert!(written < 3 * 64 * 512 + 100_000, "{written}");
}

/// Runs a program in the directory of a fixture. Returns whether it succeeded, or `None` if it is
/// missing.
fn host(fixture: &Fixture, program: &str, args: &[&str]) -> Option<bool> {
    let mut command = Command::new(require::program(program)?);
    let output = command.args(args).current_dir(fixture.dir.path()).output();
    Some(output.unwrap().status.success())
}

/// Makes an image that no tool stores contiguously: data, a long hole, and data.
fn image_with_holes(fixture: &Fixture) {
    let big = big();
    let mut file = big[..40_000].to_vec();
    file.resize(440_000, 0);
    file.extend_from_slice(&big[50_000..90_000]);
    fs::create_dir(fixture.path("holes")).unwrap();
    fs::write(fixture.path("holes/a"), file).unwrap();
    fs::write(fixture.path("holes/b"), "t").unwrap();
    let args = ["pack", "-q", "--compressor", "none", "holes", "h.erofs"];
    fixture.run(&args).ok();
    let image = fs::File::options()
        .write(true)
        .open(fixture.path("h.erofs"));
    image.unwrap().set_len(1 << 20).unwrap();
    let image = fs::read(fixture.path("h.erofs")).unwrap();
    fs::write(fixture.path("raw"), [&image[..], &image].concat()).unwrap();
}

/// Extracts with the options of a finding's `forerun ls` command, and compares with the tree.
fn assert_same(fixture: &Fixture, command: &str, tree: &str) {
    let place = command.strip_prefix("forerun ls ").unwrap();
    let _ = fs::remove_dir_all(fixture.path("out"));
    let mut args = vec!["extract", "-q", "-C", "out"];
    args.extend(place.split(' '));
    fixture.run(&args).ok();
    assert_eq!(host(fixture, "diff", &["-r", tree, "out"]), Some(true));
    args.splice(..4, ["check", "-q"]);
    fixture.run(&args).ok();
}

#[test]
fn an_android_sparse_image_is_read_through_its_map() {
    let fixture = Fixture::tree();
    image_with_holes(&fixture);
    if host(&fixture, "img2simg", &["raw", "simg"]).is_none() {
        return;
    }
    let ran = fixture.run(&["scan", "--json", "simg"]).ok();
    let findings = found(&ran);
    let expected = [
        (0, "android-sparse", None),
        (0, "erofs", Some("forerun ls simg")),
        (1 << 20, "erofs", Some("forerun ls --offset 1048576 simg")),
    ];
    let expected =
        expected.map(|(at, kind, command)| (at, kind.to_string(), command.map(str::to_string)));
    assert_eq!(findings, expected);
    for command in findings.iter().filter_map(|(.., command)| command.as_ref()) {
        assert_same(&fixture, command, "holes");
    }
    assert_eq!(
        fixture.run(&["info", "--json", "simg"]).json()["container"],
        "android-sparse"
    );
    let message = "forerun: simg: --offset 4194304 lies past the end at 2.0 MiB (2097152 bytes)";
    fixture
        .run(&["ls", "--offset", "4M", "simg"])
        .fails(2, message);
    // After other bytes, the finding is only the sparse image: `--offset` cannot address its contents.
    let behind = [
        &[7; 512][..],
        &fs::read(fixture.path("simg")).unwrap(),
        &[7; 9000],
    ]
    .concat();
    fs::write(fixture.path("behind"), behind).unwrap();
    let findings = found(&fixture.run(&["scan", "--json", "behind"]).ok());
    let [(512, kind, Some(command))] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(kind, "android-sparse");
    assert_same(&fixture, command, "holes");
    let cut = fs::read(fixture.path("simg")).unwrap();
    fs::write(fixture.path("cut"), &cut[..cut.len() - 1]).unwrap();
    let ran = fixture.run(&["ls", "cut"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    if require::fuse() && require::root() {
        fs::create_dir(fixture.path("mnt")).unwrap();
        fixture.run(&["mount", "simg", "mnt"]).ok();
        let same = host(&fixture, "diff", &["-r", "holes", "mnt"]);
        fixture.run(&["umount", "mnt"]).ok();
        assert_eq!(same, Some(true));
        let ran = fixture.run(&["mount", "--via", "kernel", "simg", "mnt"]);
        assert_ne!(ran.code, Some(0), "the kernel reads no map");
    }
}

#[test]
fn the_volumes_of_a_flash_dump_are_partitions_and_their_sums_are_compared() {
    let fixture = Fixture::tree();
    image_with_holes(&fixture);
    let config = "[a]\nmode=ubi\nimage=raw\nvol_id=1\nvol_type=static\nvol_name=first\n\
                  [b]\nmode=ubi\nimage=h.erofs\nvol_id=4\nvol_size=4MiB\nvol_type=dynamic\nvol_name=second\n";
    fs::write(fixture.path("ubi.ini"), config).unwrap();
    for (name, page, block) in [("nand", "2048", "128KiB"), ("nor", "1", "64KiB")] {
        let args = ["-o", name, "-m", page, "-p", block, "ubi.ini"];
        if host(&fixture, "ubinize", &args).is_none() {
            return;
        }
        let findings = found(&fixture.run(&["scan", "--json", name]).ok());
        let kinds: Vec<_> = findings.iter().map(|(_, kind, _)| kind.as_str()).collect();
        let expected = ["ubi", "partition", "erofs", "erofs", "partition", "erofs"];
        assert_eq!(kinds, expected);
        for command in findings.iter().filter_map(|(.., command)| command.as_ref()) {
            assert_same(&fixture, command, "holes");
        }
        assert_same(
            &fixture,
            &format!("forerun ls --partition 4 {name}"),
            "holes",
        );
        assert_same(&fixture, &format!("forerun ls {name}"), "holes");
        let message = format!(
            "forerun: {name}: has no partition 0; it has these: 1 (static volume, 2.0 MiB at 0), \
             4 (dynamic volume, "
        );
        let ran = fixture.run(&["ls", "--partition", "0", name]);
        assert!(ran.stderr.starts_with(&message), "{}", ran.stderr);
    }
    let mut dump = fs::read(fixture.path("nand")).unwrap();
    let wanted = &big()[100..164];
    let data = dump.windows(64).position(|part| part == wanted);
    dump[data.unwrap()] ^= 1;
    fs::write(fixture.path("flipped"), dump).unwrap();
    for args in [
        ["check", "-q", "flipped"],
        ["cat", "flipped", "a"],
        ["extract", "-q", "flipped"],
    ] {
        let ran = fixture.run(&args);
        assert_ne!(ran.code, Some(0), "{args:?}");
        assert!(format!("{}{}", ran.stderr, ran.text()).contains("CRC-32"));
    }
}

#[test]
fn the_disks_of_virtual_machines_are_named_with_what_converts_them() {
    let fixture = Fixture::tree();
    image_with_holes(&fixture);
    for (format, kind) in [
        ("qcow2", "qcow2"),
        ("vmdk", "vmdk"),
        ("vdi", "vdi"),
        ("vpc", "vhd"),
        ("vhdx", "vhdx"),
    ] {
        let args = ["convert", "-f", "raw", "-O", format, "raw", "disk"];
        if host(&fixture, "qemu-img", &args).is_none() {
            return;
        }
        let findings = found(&fixture.run(&["scan", "--json", "disk"]).ok());
        let convert = "qemu-img convert -O raw disk disk.raw";
        let expected = vec![(0, kind.to_string(), Some(convert.to_string()))];
        assert_eq!(findings, expected);
        for offset in ["0", "4096"] {
            let ran = fixture.run(&["ls", "--offset", offset, "disk"]);
            assert_eq!(ran.code, Some(3), "{}", ran.stderr);
            let hint = ran
                .stderr
                .contains("hint: convert it: qemu-img convert -O raw");
            assert!(hint && ran.stderr.contains(kind), "{}", ran.stderr);
        }
        let converted: Vec<_> = convert.split(' ').skip(1).collect();
        host(&fixture, "qemu-img", &converted);
        assert_same(&fixture, "forerun ls disk.raw", "holes");
    }
}
