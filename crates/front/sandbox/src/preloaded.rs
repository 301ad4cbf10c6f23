//! Detects libraries that emulate file ownership and devices: fakeroot, pseudo.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const EMULATORS: [&[u8]; 2] = [b"libfakeroot", b"libpseudo"];

/// Returns the name of the fakeroot or pseudo library in `LD_PRELOAD`.
#[must_use]
pub fn emulator_of_root() -> Option<String> {
    named(&std::env::var_os("LD_PRELOAD")?)
}

fn named(preload: &OsStr) -> Option<String> {
    let mut libraries = preload
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'))
        .filter_map(|path| path.rsplit(|byte| *byte == b'/').next());
    let found = libraries.find(|name| EMULATORS.iter().any(|start| name.starts_with(start)));
    found.map(|name| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulators_are_found_among_other_libraries() {
        for (preload, expected) in [
            ("libfakeroot-sysv.so", Some("libfakeroot-sysv.so")),
            ("/a/libeatmydata.so:/b/libpseudo.so", Some("libpseudo.so")),
            ("libjemalloc.so /libfakeroot/x.so", None),
            ("", None),
        ] {
            assert_eq!(named(OsStr::new(preload)).as_deref(), expected, "{preload}");
        }
    }
}
