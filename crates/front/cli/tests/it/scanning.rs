//! `forerun scan`, and the partitions that it numbers.

use std::fs;
use std::time::{Duration, Instant};

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

/// Returns offset, type and command of each finding.
fn found(ran: &Ran) -> Vec<(u64, String, Option<String>)> {
    let json = ran.json();
    let findings = json["findings"].as_array().unwrap().iter();
    findings
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
    let message = "forerun: tree/big: no image of a known format was found";
    fixture.run(&["scan", "tree/big"]).fails(1, message);
    let ran = fixture.run(&["scan", "--json", "tree/big"]);
    assert_eq!((ran.code, found(&ran)), (Some(1), Vec::new()));
}

/// Writes a copy of a disk with an MBR: an exFAT volume in partition 2, and the rest in partition 5.
fn disk(fixture: &Fixture) {
    let args = [
        "-q", "pack", "--format", "exfat", "--free", "1M", "tree/etc", "exfat",
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
        ran.stderr.contains("has no partition 3000; there are") && ran.stderr.contains(listed),
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
        let hint = "hint: its boot sector was overwritten, and the backup is sound: forerun check --repair zeroed mends it";
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
        let hint = format!("forerun check --repair {place} zeroed mends it");
        assert!(told.stderr.contains(&hint), "{}", told.stderr);
    }
    let repair = [
        "check", "-q", "--repair", "--yes", "--offset", "1048576", "zeroed",
    ];
    assert_eq!(fixture.run(&repair).code, Some(8));
    fixture.run(&["ls", "--offset", "1M", "zeroed"]).ok();
}
