//! Names of crates in the source of others: a rename or a re-export can hide them in a manifest, but not
//! here.

use super::Violation;
use super::arrows::driver_arrow;
use super::lexer::code_only;
use super::manifest::Package;
use super::rooms::Room;
use super::sources::SourceFile;

/// Finds all names of crates and modules that a crate may not use.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some((room, dir)) = Room::of(&file.path) else {
            continue;
        };
        let package = packages.iter().find(|package| package.dir == dir);
        let name = package.map_or(dir, |package| package.name.as_str());
        let code = code_only(&file.text);
        for (index, line) in code.lines().enumerate() {
            for message in refuse((name, room), &file.path, packages, line) {
                violations.push(Violation {
                    place: file.path.clone(),
                    line: index + 1,
                    message,
                });
            }
        }
    }
    violations
}

fn refuse(package: (&str, Room), path: &str, packages: &[Package], line: &str) -> Vec<String> {
    let mut messages = Vec::new();
    for on in packages {
        let name = on.name.replace('-', "_");
        if let Some(room) = on.room()
            && let Some(reason) = driver_arrow(package, (&on.name, room))
            && has_word(line, &name)
        {
            messages.push(format!("uses {name}: {reason}"));
        }
    }
    if package.0 != "forerun-fuse" && has_word(line, "fuser") {
        messages.push("uses fuser: only forerun-fuse knows FUSE".to_string());
    }
    // Measurements serve their own files to themselves.
    let measures =
        path.starts_with("bench/") || path == "crates/front/cli/src/commands/demo/link.rs";
    if !measures && !matches!(package.1, Room::Remote | Room::Servers) && opens_sockets(line) {
        messages.push("uses std::net: only forerun-remote opens sockets".to_string());
    }
    messages
}

/// Returns whether a line has `std::net` as a path or in a braced import, or a type that opens
/// connections. Half-closing is a matter of sockets of the file system too, and its type lives there.
fn opens_sockets(line: &str) -> bool {
    let dense: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    let dense = dense.replace("std::net::Shutdown", "");
    let path = ["std::net::", "std::net;", "core::net::"];
    path.iter().any(|path| dense.contains(path))
        || dense.contains("std::{") && has_word(line, "net")
        || ["TcpStream", "TcpListener", "UdpSocket"]
            .iter()
            .any(|name| has_word(line, name))
}

/// Returns whether a line has this word, and not as a part of another one.
pub fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[(&str, &str)] = &[
        (
            "crates/forerun/src/registry.rs",
            "use forerun_romfs::FORMAT;",
        ),
        ("crates/front/fuse/src/lib.rs", "// as forerun_romfs does"),
        ("crates/front/fuse/src/lib.rs", "let s = \"forerun_romfs\";"),
        ("crates/front/fuse/src/lib.rs", "use forerun_romfs_like;"),
        ("crates/front/fuse/src/lib.rs", "use fuser::Session;"),
        (
            "crates/formats/composefs/src/lib.rs",
            "use forerun_erofs::Erofs;",
        ),
        (
            "crates/store/remote/src/http.rs",
            "use std::net::TcpStream;",
        ),
        (
            "crates/test/servers/src/port.rs",
            "use std::net::TcpListener;",
        ),
        (
            "crates/formats/romfs/tests/x.rs",
            "use forerun_romfs::FORMAT;",
        ),
        ("crates/io/src/a.rs", "use std::os::unix::net::UnixStream;"),
    ];

    const REFUSED: &[(&str, &str)] = &[
        ("crates/test/kit/src/a.rs", "use std::net::TcpListener;"),
        ("crates/front/fuse/src/lib.rs", "use forerun_romfs::FORMAT;"),
        (
            "crates/front/fuse/src/a/b.rs",
            "\n\nforerun_romfs :: open()",
        ),
        (
            "crates/front/export/src/lib.rs",
            "extern crate forerun_squashfs;",
        ),
        ("crates/front/cli/tests/cli.rs", "use forerun_erofs as e;"),
        (
            "crates/formats/romfs/src/lib.rs",
            "use forerun_fuse::mount;",
        ),
        (
            "crates/formats/romfs/src/lib.rs",
            "use forerun_squashfs::x;",
        ),
        ("crates/front/cli/src/main.rs", "use fuser::Session;"),
        ("crates/io/src/http.rs", "use std::net::TcpStream;"),
        ("crates/io/src/http.rs", "use std::{io, net};"),
        (
            "crates/io/src/http.rs",
            "let s = std :: net :: UdpSocket::bind;",
        ),
    ];

    #[test]
    fn table() {
        let packages = [
            "crates/forerun",
            "crates/io",
            "crates/formats/romfs",
            "crates/formats/squashfs",
            "crates/formats/erofs",
            "crates/formats/composefs",
            "crates/front/cli",
            "crates/front/export",
            "crates/front/fuse",
            "crates/store/remote",
        ]
        .map(|dir| Package::new(dir, &[]));
        for (cases, is_allowed) in [(ALLOWED, true), (REFUSED, false)] {
            for (path, text) in cases {
                let found = check(&packages, &[SourceFile::new(path, text)]);
                assert_eq!(found.is_empty(), is_allowed, "{path}: {text}: {found:?}");
            }
        }
    }
}
