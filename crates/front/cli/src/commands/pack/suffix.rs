//! The format of a new image by the suffix of its name.
//!
//! The table has only suffixes with a single meaning. `.img` and `.bin` may be any format, and an
//! AppImage needs a program before its SquashFS image.

use std::path::Path;

use super::format::NewFormat;
use crate::args::is_stdin;
use crate::error::{Failure, Result};

const SUFFIXES: &[(&str, NewFormat)] = &[
    ("sqsh", NewFormat::Squashfs),
    ("sqfs", NewFormat::Squashfs),
    ("sfs", NewFormat::Squashfs),
    ("squashfs", NewFormat::Squashfs),
    ("snap", NewFormat::Squashfs),
    ("erofs", NewFormat::Erofs),
    ("cfs", NewFormat::Composefs),
    ("composefs", NewFormat::Composefs),
    ("romfs", NewFormat::Romfs),
    ("exfat", NewFormat::Exfat),
    ("sif", NewFormat::Sif),
];

pub fn format_of(output: &Path) -> Result<NewFormat> {
    let suffix = output.extension().filter(|_| !is_stdin(output));
    let mut known = SUFFIXES.iter();
    let found =
        known.find(|(name, _)| suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(name)));
    if let Some((_, format)) = found {
        return Ok(*format);
    }
    let (failure, name) = if is_stdin(output) {
        (
            Failure::usage("standard output has no suffix that names a format"),
            None,
        )
    } else {
        (
            Failure::usage("its suffix does not name a format"),
            Some(output.display()),
        )
    };
    let names: Vec<_> = SUFFIXES
        .iter()
        .map(|(name, _)| format!(".{name}"))
        .collect();
    let hint = format!(
        "give --format NAME, or one of the suffixes {}",
        names.join(", ")
    );
    let failure = failure.hint(hint);
    Err(match name {
        Some(name) => failure.of(name),
        None => failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes() {
        for (name, expected) in [
            ("a.sqsh", Some(NewFormat::Squashfs)),
            ("dir.erofs/a.SquashFS", Some(NewFormat::Squashfs)),
            ("a.img.cfs", Some(NewFormat::Composefs)),
            ("a.romfs", Some(NewFormat::Romfs)),
            ("a.exfat", Some(NewFormat::Exfat)),
            ("a.erofs", Some(NewFormat::Erofs)),
            ("a.SIF", Some(NewFormat::Sif)),
            ("erofs", None),
            (".erofs", None),
            ("a.img", None),
            ("a.AppImage", None),
            ("-", None),
        ] {
            assert_eq!(format_of(Path::new(name)).ok(), expected, "{name}");
        }
    }
}
