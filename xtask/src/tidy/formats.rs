//! The crates below the drivers name no format: not in an identifier, and not in a string.
//!
//! The names are those of the folders in `crates/formats`, so a new format is covered at once. Comments may
//! name formats, as examples of what a trait is for. Tests may as well.

use super::Violation;
use super::lexer::comments_blanked;
use super::manifest::Package;
use super::rooms::Room;
use super::sources::SourceFile;

/// Formats whose names mean something else too: writers read and write tar streams, iterators are zipped, and many words
/// have the letters. Of these, the name of the crate counts.
const ORDINARY_WORDS: &[&str] = &["tar", "zip"];

/// Finds all lines of the crates below the drivers that name a format.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let formats: Vec<String> = packages
        .iter()
        .filter(|package| package.room() == Some(Room::Format))
        .filter_map(|package| package.dir.rsplit('/').next())
        .map(|name| {
            if ORDINARY_WORDS.contains(&name) {
                format!("forerun_{name}")
            } else {
                name.to_string()
            }
        })
        .collect();
    let mut violations = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_only_tests())
    {
        let Some((room, _)) = Room::of(&file.path) else {
            continue;
        };
        if !room.is_below_formats() {
            continue;
        }
        let code = comments_blanked(file.shipped()).to_ascii_lowercase();
        for (index, line) in code.lines().enumerate() {
            if let Some(format) = formats.iter().find(|format| line.contains(*format)) {
                violations.push(Violation {
                    place: file.path.clone(),
                    line: index + 1,
                    message: format!("names {format}: only its driver and the registry know it"),
                });
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let packages = [
            "crates/engine",
            "crates/formats/romfs",
            "crates/formats/tar",
            "crates/forerun",
        ]
        .map(|dir| Package::new(dir, &[]));
        for (path, text, sound) in [
            ("crates/engine/src/a.rs", "// as romfs does", true),
            ("crates/engine/src/a.rs", "if format == \"erofs\" {}", true),
            (
                "crates/build/src/a.rs",
                "fn start(input: TarInput) {}",
                true,
            ),
            ("crates/engine/tests/it/a.rs", "let romfs = 1;", true),
            (
                "crates/vfs/src/a.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"romfs\";\n}\n",
                true,
            ),
            (
                "crates/forerun/src/registry.rs",
                "forerun_romfs::FORMAT,",
                true,
            ),
            ("crates/formats/romfs/src/lib.rs", "name: \"romfs\",", true),
            ("crates/front/cli/src/a.rs", "Romfs,", true),
            ("crates/engine/src/a.rs", "if format == \"romfs\" {}", false),
            ("crates/io/src/a.rs", "fn romfs_blocks() {}", false),
            ("crates/vfs/src/a.rs", "pub struct RomfsOptions;", false),
            (
                "crates/codec/src/a.rs",
                "\n/* a */ let s = \"a ROMFS image\";",
                false,
            ),
            ("crates/build/src/a.rs", "Kind::Romfs => 1,", false),
            ("crates/build/src/a.rs", "use forerun_tar::Tar;", false),
        ] {
            let found = check(&packages, &[SourceFile::new(path, text)]);
            assert_eq!(found.is_empty(), sound, "{path}: {text}: {found:?}");
        }
    }
}
