//! The on-disk fields of an image, and the errors of malicious images, as one text for snapshots.

use std::fmt::Write;

use forerun_vfs::{Error, FileSystem, Limits, Walk};

/// Returns the output of `info` and `dump` for an image: one line for the details of the volume,
/// one for the fields of the image, and one for the fields of each node, by path.
pub fn described(fs: &dyn FileSystem) -> String {
    let mut out = String::new();
    let mut add = |title: &str, fields: Vec<(&str, String)>| {
        let fields = fields.iter().map(|(name, value)| format!("{name}={value}"));
        let fields: Vec<_> = fields.collect();
        writeln!(out, "[{title}] {}", fields.join(", ")).unwrap();
    };
    let volume = fs.volume();
    let created = volume
        .created
        .map(|seconds| ("created", seconds.to_string()));
    add(
        "info",
        volume.details.iter().cloned().chain(created).collect(),
    );
    add("image", fs.describe(None).unwrap());
    for entry in Walk::new(fs, fs.root(), &Limits::default()) {
        let entry = entry.unwrap();
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        add(&path, fs.describe(Some(entry.node)).unwrap());
    }
    out
}

/// Returns the errors that `walk` finds in each image, as users read them.
pub fn told<'w>(
    images: impl IntoIterator<Item = (&'w str, Vec<u8>)>,
    walk: impl Fn(&[u8]) -> Vec<Error>,
) -> String {
    let mut out = String::new();
    for (what, image) in images {
        writeln!(out, "{what}").unwrap();
        let errors = walk(&image);
        // Some malicious changes cannot be detected: another owner, another name.
        if errors.is_empty() {
            writeln!(out, "    nothing is wrong").unwrap();
        }
        for error in errors {
            writeln!(out, "    {error}").unwrap();
        }
    }
    out
}
