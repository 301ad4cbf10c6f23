//! Recognises images that look like SquashFS and are not 4.0, by magic and version, and refuses
//! them by name.

use forerun_vfs::Error;

/// Magics that a SquashFS-like image may start with, and their meaning.
const MAGICS: &[(&[u8; 4], &str)] = &[
    (b"sqsh", "a big-endian SquashFS image of version 1.x to 3.x"),
    (
        b"shsq",
        "a SquashFS image with LZMA of a vendor's own (magic shsq)",
    ),
    (
        b"qshs",
        "a big-endian SquashFS image with LZMA of a vendor's own (magic qshs)",
    ),
    (
        b"hsqt",
        "a SquashFS image of a vendor's own (magic hsqt, as DD-WRT makes)",
    ),
    (
        b"tqsh",
        "a big-endian SquashFS image of a vendor's own (magic tqsh, as DD-WRT makes)",
    ),
    (
        b"sqlz",
        "a SquashFS image with LZMA of a vendor's own (magic sqlz)",
    ),
    (
        b"zlqs",
        "a big-endian SquashFS image with LZMA of a vendor's own (magic zlqs)",
    ),
];

/// Returns whether the first bytes are those of any SquashFS, so that this crate can report on it.
pub fn is_any(head: &[u8]) -> bool {
    head.starts_with(b"hsqs") || find(head).is_some()
}

/// Returns why the image cannot be read, if the magic or version already shows it.
pub fn refuse(head: &[u8]) -> Option<Error> {
    if let Some(what) = find(head) {
        return Some(Error::Unsupported(format!("{what}; this reads 4.0")));
    }
    // In 1.x to 3.x the version lies at the same place, as two 16-bit words.
    let version = head
        .starts_with(b"hsqs")
        .then(|| head.get(28..32))
        .flatten()?;
    let &[major, 0, minor, 0] = version else {
        return None;
    };
    (1..=3)
        .contains(&major)
        .then(|| Error::Unsupported(format!("SquashFS version {major}.{minor}; this reads 4.0")))
}

fn find(head: &[u8]) -> Option<&'static str> {
    let found = MAGICS.iter().find(|(magic, _)| head.starts_with(*magic));
    found.map(|&(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_is_refused_by_name() {
        for (magic, what) in MAGICS {
            let error = refuse(*magic).unwrap();
            assert!(is_any(*magic) && error.to_string().contains(what));
        }
        for (major, refused) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let mut head = [0; 96];
            head[..4].copy_from_slice(b"hsqs");
            (head[28], head[30]) = (major, 1);
            let text = refuse(&head).map(|error| error.to_string());
            let expected = format!("not supported: SquashFS version {major}.1; this reads 4.0");
            assert_eq!(text, refused.then_some(expected));
        }
        assert!(!is_any(b"hsq") && refuse(b"hsqs").is_none() && refuse(b"").is_none());
    }
}
