//! Names that the code in some directories may not use, beyond what manifests show: the standard
//! library has sockets and threads, and each crate could use errno and the names of formats.

use regex::Regex;

use super::tree::{Package, SourceFile, code_only, pattern, without_comments};

struct Rule {
    words: Regex,
    /// Directories or files to which the rule applies, and exceptions among them.
    within: &'static [&'static str],
    except: &'static [&'static str],
    /// Whether strings count, and whether tests count.
    strings: bool,
    tests: bool,
    message: &'static str,
}

/// The crates below the drivers. They know no format.
const BELOW: &[&str] = &[
    "crates/io/",
    "crates/codec/",
    "crates/vfs/",
    "crates/build/",
    "crates/engine/",
    "crates/spans/",
    "crates/layers/",
];
/// The crate that answers requests, and the crates it is built on.
const ANSWERS: &[&str] = &[
    "crates/sys/",
    "crates/io/",
    "crates/codec/",
    "crates/vfs/",
    "crates/disk/",
    "crates/build/",
    "crates/engine/",
    "crates/spans/",
    "crates/layers/",
    "crates/formats/",
    "crates/store/",
    "crates/forerun/",
    "crates/front/fuse/",
];
/// Formats whose names are ordinary words. For these, the name of the crate counts.
const ORDINARY_WORDS: [&str; 2] = ["tar", "zip"];

fn rules(packages: &[Package]) -> Vec<Rule> {
    let formats = packages
        .iter()
        .filter_map(|package| package.dir.strip_prefix("crates/formats/"));
    let formats = formats.map(|name| match name {
        word if ORDINARY_WORDS.contains(&word) => format!("forerun_{word}"),
        name => name.to_string(),
    });
    let formats: Vec<String> = formats.collect();
    vec![
        Rule {
            words: pattern(r"(?-u:\b)(TcpStream|TcpListener|UdpSocket|ToSocketAddrs)(?-u:\b)"),
            within: &["crates/", "python/", "xtask/"],
            // The demo serves files to itself.
            except: &[
                "crates/store/remote/",
                "crates/test/servers/",
                "crates/front/cli/src/commands/demo/link.rs",
            ],
            strings: false,
            tests: true,
            message: "only forerun-remote opens sockets",
        },
        Rule {
            words: pattern(r"(?-u:\b)(Errno|errno|from_raw_os_error|raw_os_error)(?-u:\b)"),
            within: &[
                "crates/codec/",
                "crates/vfs/",
                "crates/engine/",
                "crates/formats/",
            ],
            except: &[],
            strings: false,
            tests: false,
            message: "knows errno: use the kind of the io::Error, or a typed error",
        },
        Rule {
            words: pattern(r"=>\s*(libc::E|nix::Error::E|((nix|rustix)::(io::|errno::)?)?Errno::)"),
            within: &["crates/", "python/"],
            // Both speak FUSE.
            except: &["crates/front/fuse/", "crates/front/runtime/"],
            strings: false,
            tests: false,
            message: "answers with an errno: only forerun-fuse has a table of them",
        },
        Rule {
            // A thread that answers may be pinned to the CPU of its reader. The threads of a
            // runtime have a hook.
            words: pattern(
                r"(?-u:\b)(thread::(spawn|Builder)|scope\.spawn|new_multi_thread)(?-u:\b)",
            ),
            within: ANSWERS,
            except: &[
                "crates/sys/src/threads.rs",
                "crates/store/remote/src/runtime.rs",
            ],
            strings: false,
            tests: false,
            message: "starts a thread that inherits the reader's CPU: use forerun_sys::threads",
        },
        Rule {
            words: pattern(&format!("(?i)({})", formats.join("|"))),
            within: if formats.is_empty() { &[] } else { BELOW },
            except: &[],
            strings: true,
            tests: false,
            message: "only the driver of a format and the registry know its name",
        },
    ]
}

/// Finds all names that a file may not use.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<String> {
    let rules = rules(packages);
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let is_in = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
        for rule in rules
            .iter()
            .filter(|rule| is_in(rule.within) && !is_in(rule.except))
        {
            if file.is_test() && !rule.tests {
                continue;
            }
            let text = if rule.tests {
                &file.text
            } else {
                file.shipped()
            };
            let code = if rule.strings {
                without_comments(text)
            } else {
                code_only(text)
            };
            violations.extend(rule.words.find_iter(&code).map(|found| {
                file.violation(
                    found.start(),
                    format!("{}: {}", found.as_str(), rule.message),
                )
            }));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[(&str, &str)] = &[
        ("store/remote/src/a.rs", "use std::net::TcpStream;"),
        ("test/servers/src/a.rs", "use std::net::TcpListener;"),
        (
            "io/src/a.rs",
            "use std::os::unix::net::UnixStream; use std::net::Shutdown;",
        ),
        ("engine/src/a.rs", "// as errno says"),
        (
            "engine/src/a.rs",
            "fn without_errno() { io::ErrorKind::NotFound }",
        ),
        ("vfs/tests/it/a.rs", "io::Error::from_raw_os_error(5)"),
        (
            "vfs/src/a.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use rustix::io::Errno;\n}\n",
        ),
        ("front/fuse/src/errno.rs", "Error::Exists => Errno::EEXIST,"),
        ("io/src/a.rs", "Err(Errno::INTR) => {}"),
        ("front/export/src/a.rs", "Err(Errno::NXIO) => Ok(size),"),
        (
            "engine/src/a.rs",
            "threads::spawn_scoped(scope, \"a\", work)",
        ),
        (
            "engine/src/a.rs",
            "std::thread::scope(|scope| work(scope)); Command::new(program).spawn()",
        ),
        ("sys/src/threads.rs", "std::thread::Builder::new()"),
        ("front/cli/src/a.rs", "thread::spawn(work)"),
        ("front/fuse/tests/it/a.rs", "thread::spawn(work)"),
        (
            "engine/src/a.rs",
            "// as romfs does\nif format == \"erofs\" {}",
        ),
        ("build/src/a.rs", "fn start(tar: TarWords) {}"),
        ("forerun/src/registry.rs", "forerun_romfs::FORMAT,"),
    ];

    const REFUSED: &[(&str, &str)] = &[
        ("test/kit/src/a.rs", "use std::net::TcpListener;"),
        (
            "io/tests/it/a.rs",
            "use std::{io, net}; net::TcpStream::connect(a)",
        ),
        ("formats/romfs/src/a.rs", "use rustix::io::Errno;"),
        ("vfs/src/a.rs", "error.raw_os_error()"),
        ("engine/src/a.rs", "pub mod errno;"),
        ("forerun/src/a.rs", "Error::Exists => Errno::EXIST,"),
        ("front/cli/src/a.rs", "Error::Exists => libc::EEXIST,"),
        ("front/export/src/a.rs", "_ =>  rustix::io::Errno::IO,"),
        ("engine/src/a.rs", "std::thread::spawn(work)"),
        ("engine/src/a.rs", "std::thread::Builder::new()"),
        ("front/fuse/src/a.rs", "scope.spawn(work)"),
        ("forerun/src/a.rs", "Builder::new_multi_thread().build()"),
        ("engine/src/a.rs", "if format == \"romfs\" {}"),
        ("io/src/a.rs", "fn romfs_blocks() {}"),
        ("vfs/src/a.rs", "pub struct RomfsOptions;"),
        ("build/src/a.rs", "use forerun_tar::Tar;"),
    ];

    #[test]
    fn table() {
        let packages = [
            "crates/engine",
            "crates/formats/romfs",
            "crates/formats/tar",
        ];
        let packages = packages.map(|dir| Package::new(dir, &[]));
        for (cases, is_allowed) in [(ALLOWED, true), (REFUSED, false)] {
            for (path, text) in cases {
                let file = SourceFile::new(&format!("crates/{path}"), text);
                let found = check(&packages, &[file]);
                assert_eq!(found.is_empty(), is_allowed, "{path}: {text}: {found:?}");
            }
        }
    }

    #[test]
    fn the_line_is_told() {
        let file = SourceFile::new(
            "crates/vfs/src/a.rs",
            "/* a\n */ let s = 'x';\nuse Errno;\n",
        );
        let message = "knows errno: use the kind of the io::Error, or a typed error";
        assert_eq!(
            check(&[], &[file]),
            [format!("crates/vfs/src/a.rs:3: Errno: {message}")]
        );
    }
}
