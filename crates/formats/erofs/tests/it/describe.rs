//! The on-disk fields of small images, as `dump` shows them.

use std::fmt::Write;
use std::sync::Arc;

use forerun_erofs::{Erofs, fuzzing};
use forerun_io::{Limits, MemorySource};
use forerun_vfs::{FileSystem, OpenWith, Walk};

fn dump(image: Vec<u8>) -> String {
    let fs = Erofs::open(OpenWith::new(Arc::new(MemorySource::new(image)))).unwrap();
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
    insta::assert_snapshot!("every_kind", dump(fuzzing::image()));
}
