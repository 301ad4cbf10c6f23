//! EROFS images as users open them: found by content, with data on other devices, each block read
//! and decoded once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use forerun::vfs::{Error, FollowLast, NodeId, resolve};
use forerun::{Image, OpenOptions, Reader};
use forerun_io::Counter;
use forerun_testkit::{generate, require, temp_dir};

fn make(dir: &Path, options: &[&str]) -> Option<PathBuf> {
    let mkfs = require::program("mkfs.erofs")?;
    let image = dir.join("image");
    let mut command = Command::new(mkfs);
    command
        .arg("--quiet")
        .args(options)
        .args([&image, &dir.join("tree")]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(image)
}

fn find(reader: &Reader, path: &[u8]) -> NodeId {
    resolve(reader.fs(), path, FollowLast::Yes, reader.limits()).unwrap()
}

#[test]
fn data_on_another_device() {
    let dir = temp_dir("erofs-open");
    let bytes = generate::bytes(3, 3_000_000);
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/file"), &bytes).unwrap();
    let device = dir.path().join("device");
    File::create(&device).unwrap();
    let blob = format!("--blobdev={}", device.display());
    let Some(path) = make(dir.path(), &["--chunksize", "4096", &blob]) else {
        return;
    };
    let mut options = OpenOptions {
        devices: vec![device.clone()],
        ..OpenOptions::default()
    };
    for large_blocks in [true, false] {
        options.engine.large_blocks = large_blocks;
        let image = Image::open_with(&path, &options).unwrap();
        assert_eq!(image.format(), "erofs");
        let reader = image.reader();
        let node = find(reader, b"file");
        let data = reader.read(node, 0, bytes.len()).unwrap();
        assert!(data[..] == bytes, "{large_blocks}");
    }
    // Without the device, everything except its data is readable; the error names the missing
    // device.
    let image = Image::open(&path).unwrap();
    let node = find(image.reader(), b"file");
    let error = image.reader().read(node, 0, 1).err().unwrap();
    assert!(matches!(error, Error::Blob { .. }), "{error}");
    assert!(error.to_string().contains("device 1"), "{error}");
    options.devices = vec![dir.path().join("missing")];
    let error = Image::open_with(&path, &options).err().unwrap();
    assert!(
        error.to_string().contains("missing: No such file"),
        "{error}"
    );
    // If the device is too short, reading the missing part fails.
    File::options()
        .write(true)
        .open(&device)
        .unwrap()
        .set_len(1_000_000)
        .unwrap();
    options.devices = vec![device];
    let image = Image::open_with(&path, &options).unwrap();
    let node = find(image.reader(), b"file");
    assert!(image.reader().read(node, 0, 900_000).unwrap()[..] == bytes[..900_000]);
    let error = image.reader().read(node, 990_000, 100_000).err().unwrap();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn a_compressed_file_read_from_end_to_end_decodes_each_block_once() {
    let dir = temp_dir("erofs-open");
    let line = |n: usize| format!("{:x} line {n}\n", n * 7919 % 65_521).into_bytes();
    let text: Vec<u8> = (0..200_000).flat_map(line).collect();
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/text"), &text).unwrap();
    for options in [&["-z", "lz4hc", "-C", "65536"][..], &["-z", "lz4"]] {
        let Some(path) = make(dir.path(), options) else {
            return;
        };
        let image = Image::open(&path).unwrap();
        let reader = image.reader();
        let node = find(reader, b"text");
        let mut at = 0;
        while at < text.len() {
            let data = reader.read(node, at as u64, 131_072).unwrap();
            assert!(data[..] == text[at..at + data.len()], "{at}");
            at += data.len();
        }
        let stats = reader.observer().stats();
        assert!(stats.get(Counter::Decodes) > 20);
        assert_eq!(stats.get(Counter::RepeatedDecodes), 0, "{options:?}");
    }
}
