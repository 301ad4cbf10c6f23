//! The on-disk fields of small images, as `dump` shows them.

use std::fmt::Write;

use forerun_io::Limits;
use forerun_squashfs::fuzzing;
use forerun_vfs::{FileSystem, Walk};

use crate::common;

fn dump(image: Vec<u8>) -> String {
    let fs = common::open(image).unwrap();
    let mut out = String::new();
    let mut add = |title: &str, fields: Vec<(&str, String)>| {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        writeln!(out, "[{title}] {}", fields.join(", ")).unwrap();
    };
    add("info", fs.volume().details);
    add("image", fs.describe(None).unwrap());
    for entry in Walk::new(&fs, fs.root(), &Limits::default()) {
        let entry = entry.unwrap();
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        add(&path, fs.describe(Some(entry.node)).unwrap());
    }
    out
}

#[test]
fn every_kind() {
    let seeds = fuzzing::seeds().unwrap();
    // A seed that does not depend on a codec's own choices.
    let (_, image) = seeds
        .into_iter()
        .find(|(name, _)| *name == "parts")
        .unwrap();
    insta::assert_snapshot!("every_kind", dump(image));
}
