//! The on-disk fields of small images, as `info` and `dump` show them.

use std::fmt::Write;

use forerun_cramfs::fuzzing;
use forerun_io::Limits;
use forerun_vfs::{FileSystem, Walk};

use crate::common::open;

fn dump(seed: &str) -> String {
    let seeds = fuzzing::seeds();
    let (_, image) = seeds.iter().find(|(name, _)| *name == seed).unwrap();
    let fs = open(image);
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
    insta::assert_snapshot!("every_kind", dump("everything"));
}

#[test]
fn flags_in_pointers_and_the_other_byte_order() {
    insta::assert_snapshot!("extended", dump("extended"));
}

#[test]
fn no_version_2() {
    insta::assert_snapshot!("version1", dump("version1"));
}
