//! The public names at the root of the library.

use std::collections::BTreeSet;

/// Returns the names that `lib.rs` exports at the root of the crate.
fn names_at_the_root() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/lib.rs");
    let mut names = BTreeSet::new();
    let mut rest = source;
    while let Some(at) = rest.find("\npub ") {
        let item = &rest[at + "\npub ".len()..];
        let end = item.find([';', '{']).unwrap();
        let (head, body) = item.split_at(end);
        if let Some(path) = head.strip_prefix("use ") {
            let list = match body.strip_prefix('{') {
                Some(list) => list.split_once('}').unwrap().0,
                None => path.rsplit("::").next().unwrap(),
            };
            let name = |name: &'static str| name.trim().rsplit(' ').next();
            names.extend(
                list.split(',')
                    .filter_map(name)
                    .filter(|name| !name.is_empty()),
            );
        } else {
            names.extend(head.split_whitespace().nth(1));
        }
        rest = &item[end..];
    }
    names
}

#[test]
fn the_root_has_the_names_that_users_need_and_no_others() {
    let expected = [
        "Cause",
        "DirEntry",
        "EngineOptions",
        "Error",
        "File",
        "FileType",
        "Image",
        "LayerSource",
        "Limits",
        "MemorySource",
        "Metadata",
        "Observer",
        "OpenOptions",
        "PackError",
        "PackOptions",
        "Packed",
        "ReadAt",
        "ReadDir",
        "Reader",
        "RemoteOptions",
        "Result",
        "Walk",
        "Writer",
        "Xattrs",
        "build",
        "format_names",
        "unstable",
        "vfs",
    ];
    assert_eq!(names_at_the_root(), BTreeSet::from(expected));
}
