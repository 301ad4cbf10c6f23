//! The on-disk fields of a small image, as `dump` shows them.

use std::fmt::Write;
use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_romfs::{Romfs, fuzzing};
use forerun_vfs::{FileSystem, Walk};

fn dump(image: Vec<u8>) -> String {
    let limits = Limits::default();
    let romfs = Romfs::open(Arc::new(MemorySource::new(image)), &limits).unwrap();
    let mut out = String::new();
    let mut add = |title: &str, fields: Vec<(&str, String)>| {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        writeln!(out, "[{title}] {}", fields.join(", ")).unwrap();
    };
    add("image", romfs.describe(None).unwrap());
    for entry in Walk::new(&romfs, romfs.root(), &limits) {
        let entry = entry.unwrap();
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        add(&path, romfs.describe(Some(entry.node)).unwrap());
    }
    out
}

#[test]
fn every_kind() {
    let seeds = fuzzing::seeds().unwrap();
    let (_, image) = seeds
        .into_iter()
        .find(|(name, _)| *name == "everything")
        .unwrap();
    insta::assert_snapshot!("every_kind", dump(image));
}

#[test]
fn a_wrong_checksum() {
    let seeds = fuzzing::seeds().unwrap();
    let (_, mut image) = seeds
        .into_iter()
        .find(|(name, _)| *name == "empty")
        .unwrap();
    image[0x2F] ^= 1;
    insta::assert_snapshot!("a_wrong_checksum", dump(fuzzing::with_checksum(&image)));
}
