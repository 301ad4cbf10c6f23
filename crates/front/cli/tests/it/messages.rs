//! Messages that users read when something is wrong, in two files for review: `tests/messages.txt`
//! has the output of commands, most common mistakes first, and `tests/errors.txt` the text of each
//! error in the code.
//!
//! `FORERUN_UPDATE=1 cargo test` rewrites them.

use std::fs;
use std::path::Path;

use crate::common::Fixture;

/// Commands, with the words that `sh` would pass.
const MISTAKES: &[(&str, &[&str])] = &[
    (
        "The command line",
        &[
            "sacn a.img",
            "frobnicate",
            "ls",
            "cat a.img",
            "ls --nosuch a.img",
            "ls --recursiv a.img",
            "ls --size 1Q a.img",
            "ls --size",
            "ls --threads 999 a.img",
            "pack --format ntfs tree x",
            "pack --format squashfs --compressor zip tree x",
            "umount --dead mnt",
            "mount --no-lock a.img mnt",
        ],
    ),
    (
        "Images that cannot be opened",
        &[
            "ls nope",
            "ls tree",
            "ls text",
            "ls empty",
            "ls firmware.bin",
            "ls disk.img",
            "ls ext4.img",
            "ls vm.qcow2",
            "ls text.gz",
            "ls short.img",
            "ls --format squashfs a.img",
            "ls --format ext9 a.img",
            "ls --offset 1M a.img",
            "ls --offset 99M a.img",
            "ls --partition 1 a.img",
            "ls --partition 2 disk.img",
            "ls docker://alpine",
            "ls ghcr.io/a/b",
            "ls oci:layout",
            "ls oci-layout:layout",
            "ls ftp://h/x",
            "ls -",
        ],
    ),
    (
        "Paths in images",
        &[
            "ls a.img /nope",
            "cat a.img /nope",
            "cat a.img /etc",
            "ls a.img /etc/passwd/x",
            "extract -C out a.img /nope",
            "ls -R --limit entries=2 a.img",
            "extract -C out --include [ a.img",
            "extract -C out --limit total-bytes=10 a.img big",
        ],
    ),
    (
        "Outputs",
        &[
            "tar -o a.img a.img",
            "tar -o text a.img",
            "tar -o nodir/x.tar a.img",
            "tar -o tree a.img",
            "extract -C text a.img",
            "pack tree x",
            "pack tree",
            "pack nope x.sqsh",
            "pack --format romfs text text",
            "pack text x.sqsh",
            "pack a.img x.sqsh",
            "convert a.img",
            "mkfs exfat x",
            "mkfs exfat text",
        ],
    ),
    (
        "Mounts and commands in images",
        &[
            "mount a.img nowhere",
            "mount a.img text",
            "mount nope mnt",
            "mount text mnt",
            "mount -o umsak=7 a.img mnt",
            "mount -o offset=1T a.img mnt",
            "mount -o uid a.img mnt",
            "mount -o ro=1 a.img mnt",
            "mount --via kernel https://h/x mnt",
            "mount - mnt",
            "umount mnt",
            "umount nowhere",
            "restart mnt",
            "run nope -- sh",
            "run alpine:3 -- sh",
            "run a::b -- sh",
            "run - -- sh",
            "run a.img",
            "run --bind data a.img -- sh",
        ],
    ),
    (
        "Servers",
        &[
            "ls http://127.0.0.1:1/x",
            "ls --offline http://127.0.0.1:1/x",
            "ls oci://127.0.0.1:1/a:1",
            "ls oci://h",
            "ls https://",
            "ls s3://b",
            "pull a.img x",
            "push a.img registry/a",
            "push oci-layout:layout oci://h/a",
            "push nope oci://127.0.0.1:1/a",
            "cache prefetch a.img",
            "index a.img x",
        ],
    ),
    (
        "Other commands",
        &[
            "check text",
            "check --repair a.img",
            "check --undo text a.img",
            "label a.img x",
            "scan text",
            "diff a.img nope",
            "trace text",
            "gc --objects tree nope",
            "dump text",
            "map nope",
            "map --layer a.img --layer a.img",
            "bench nope",
        ],
    ),
];

fn make_files(fixture: &Fixture) {
    let write = |name: &str, bytes: &[u8]| fs::write(fixture.path(name), bytes).unwrap();
    let image = fs::read(fixture.path("a.img")).unwrap();
    write("text", b"no image\n");
    write("empty", b"");
    write("short.img", &image[..1000]);
    write("firmware.bin", &[&vec![0xff; 1 << 16], &image[..]].concat());
    write("disk.img", &super::hints::disk_of(&image[..1 << 20]));
    write(
        "ext4.img",
        &[&[0; 0x438][..], b"\x53\xef", &[0; 4096]].concat(),
    );
    write(
        "vm.qcow2",
        &[&b"QFI\xfb\0\0\0\x03"[..], &[0; 4096]].concat(),
    );
    write(
        "text.gz",
        b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x49\xad\x28\x01\0\xc7\xa7\x8b\x3b\x04\0\0\0",
    );
    fs::create_dir(fixture.path("mnt")).unwrap();
}

#[test]
fn the_messages_of_common_mistakes_are_reviewed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    make_files(&fixture);
    let here = fixture.dir.path().canonicalize().unwrap();
    let here = here.display().to_string();
    let mut found = String::new();
    for (title, lines) in MISTAKES {
        found += &format!("# {title}\n\n");
        for line in *lines {
            let words: Vec<_> = line.split(' ').collect();
            let told = fixture
                .command(&words)
                .env("XDG_CACHE_HOME", "cache")
                .output();
            let told = told.unwrap();
            let text = String::from_utf8(told.stderr)
                .unwrap()
                .replace(&here, "/here");
            let code = told.status.code().unwrap();
            assert_ne!(code, 0, "{line}");
            assert_dialect(line, &text);
            found += &format!("$ forerun {line}\n{text}[{code}]\n\n");
        }
    }
    compare(&found, "tests/messages.txt", "$ ");
}

/// Compares a text, of which each part starts with `mark`, with a reviewed file.
#[track_caller]
fn compare(found: &str, file: &str, mark: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("FORERUN_UPDATE").is_some() {
        fs::write(&path, found).unwrap();
    }
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    for (found, reviewed) in found.split(mark).zip(reviewed.split(mark)) {
        assert_eq!(found, reviewed, "FORERUN_UPDATE=1 writes {file} anew");
    }
    assert_eq!(
        found.len(),
        reviewed.len(),
        "FORERUN_UPDATE=1 writes {file} anew"
    );
}

/// Asserts that a message has the common form `forerun: WHAT: WHY`, with at most one hint, in the
/// last line.
#[track_caller]
fn assert_dialect(line: &str, text: &str) {
    let mut lines: Vec<_> = text.lines().collect();
    if lines
        .last()
        .is_some_and(|last| last.starts_with("  hint: "))
    {
        lines.pop();
    }
    assert!(!lines.is_empty(), "{line}: {text}");
    for message in lines {
        assert!(message.starts_with("forerun: "), "{line}: {text}");
    }
}

/// Finds the texts of errors in a source file, with the names of their values: `reading <len> bytes
/// at <offset>`.
fn texts_of_errors(source: &str) -> Vec<String> {
    const START: &str = "#[error(";
    let starts = source.match_indices(START).map(|(at, _)| at + START.len());
    starts
        .filter_map(|at| {
            let rest = source[at..].trim_start().strip_prefix('"')?;
            let end = rest
                .char_indices()
                .scan(false, |escaped, (at, char)| {
                    let is_end = char == '"' && !*escaped;
                    *escaped = char == '\\' && !*escaped;
                    Some((at, is_end))
                })
                .find_map(|(at, is_end)| is_end.then_some(at))?;
            let (text, values) = rest.split_at(end);
            Some(named(&joined(text), &values[1..]))
        })
        .collect()
}

/// Joins a literal that continues on the next line.
fn joined(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// Replaces placeholders by the names of their values. Unnamed placeholders get their names from
/// `values`.
fn named(text: &str, values: &str) -> String {
    let mut values = values.split(',').skip(1).map(|value| {
        let words = value.split(|char: char| !char.is_alphanumeric() && char != '_');
        let mut words = words.filter(|word| {
            word.starts_with(|c: char| c.is_ascii_lowercase()) && *word != "from_utf8_lossy"
        });
        words.next().unwrap_or("value").to_string()
    });
    let mut parts = text.split('{');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let Some((name, rest)) = part.split_once('}') else {
            out.push_str(part);
            continue;
        };
        let name = name.split(':').next().unwrap_or_default();
        let name = match name {
            "" => values.next().unwrap_or_else(|| "value".to_string()),
            name if name.starts_with(|c: char| c.is_ascii_digit()) => "value".to_string(),
            name => name.to_string(),
        };
        out += &format!("<{name}>{rest}");
    }
    out.replace("\\\"", "\"")
}

#[test]
fn the_texts_of_all_errors_are_reviewed() {
    let crates = forerun_testkit::workspace_root().join("crates");
    let mut found = String::new();
    let mut dirs = vec![crates.clone()];
    while let Some(dir) = dirs.pop() {
        let entries = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut entries: Vec<_> = entries.collect();
        entries.sort();
        let (below, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
        dirs.extend(
            below
                .into_iter()
                .rev()
                .filter(|dir| !dir.ends_with("tests")),
        );
        for file in files
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == "rs"))
        {
            let texts = texts_of_errors(&fs::read_to_string(file).unwrap());
            if !texts.is_empty() {
                let name = file.strip_prefix(&crates).unwrap().display();
                found += &format!("# {name}\n{}\n\n", texts.join("\n"));
            }
        }
    }
    compare(&found, "tests/errors.txt", "# ");
}
