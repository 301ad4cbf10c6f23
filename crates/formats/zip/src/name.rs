//! The names of members (4.4.17), in the encodings that programs use.
//!
//! Without the flag for UTF-8, the specification says IBM code page 437. In fact, programs on UNIX
//! store the bytes of the filesystem in any encoding, and some on Windows use backslashes in place
//! of slashes.

use std::borrow::Cow;

use crate::ondisk::{HOST_FAT, HOST_OS_X, HOST_UNIX, UTF8};

/// Returns the path of a member as a tree shows it.
pub fn path(raw: &[u8], flags: u16, host: u8) -> Cow<'_, [u8]> {
    let is_bytes = flags & UTF8 != 0 || host == HOST_UNIX || host == HOST_OS_X;
    let path = if is_bytes || std::str::from_utf8(raw).is_ok() {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(of_code_page(raw).into_bytes())
    };
    let is_of_windows = host == HOST_FAT && !path.contains(&b'/') && path.contains(&b'\\');
    if is_of_windows {
        Cow::Owned(path.iter().map(|&byte| slash(byte)).collect())
    } else {
        path
    }
}

const fn slash(byte: u8) -> u8 {
    match byte {
        b'\\' => b'/',
        byte => byte,
    }
}

fn of_code_page(raw: &[u8]) -> String {
    let mut text = String::with_capacity(raw.len() * 2);
    for &byte in raw {
        let high = usize::from(byte).checked_sub(128);
        text.push(match high.and_then(|high| CODE_PAGE_437.get(high)) {
            Some(&high) => high,
            None => char::from(byte),
        });
    }
    text
}

/// The upper half of IBM code page 437.
#[rustfmt::skip]
const CODE_PAGE_437: [char; 128] = [
    '\u{c7}', '\u{fc}', '\u{e9}', '\u{e2}', '\u{e4}', '\u{e0}', '\u{e5}', '\u{e7}', '\u{ea}', '\u{eb}', '\u{e8}', '\u{ef}',
    '\u{ee}', '\u{ec}', '\u{c4}', '\u{c5}', '\u{c9}', '\u{e6}', '\u{c6}', '\u{f4}', '\u{f6}', '\u{f2}', '\u{fb}', '\u{f9}',
    '\u{ff}', '\u{d6}', '\u{dc}', '\u{a2}', '\u{a3}', '\u{a5}', '\u{20a7}', '\u{192}', '\u{e1}', '\u{ed}', '\u{f3}', '\u{fa}',
    '\u{f1}', '\u{d1}', '\u{aa}', '\u{ba}', '\u{bf}', '\u{2310}', '\u{ac}', '\u{bd}', '\u{bc}', '\u{a1}', '\u{ab}', '\u{bb}',
    '\u{2591}', '\u{2592}', '\u{2593}', '\u{2502}', '\u{2524}', '\u{2561}', '\u{2562}', '\u{2556}', '\u{2555}', '\u{2563}', '\u{2551}', '\u{2557}',
    '\u{255d}', '\u{255c}', '\u{255b}', '\u{2510}', '\u{2514}', '\u{2534}', '\u{252c}', '\u{251c}', '\u{2500}', '\u{253c}', '\u{255e}', '\u{255f}',
    '\u{255a}', '\u{2554}', '\u{2569}', '\u{2566}', '\u{2560}', '\u{2550}', '\u{256c}', '\u{2567}', '\u{2568}', '\u{2564}', '\u{2565}', '\u{2559}',
    '\u{2558}', '\u{2552}', '\u{2553}', '\u{256b}', '\u{256a}', '\u{2518}', '\u{250c}', '\u{2588}', '\u{2584}', '\u{258c}', '\u{2590}', '\u{2580}',
    '\u{3b1}', '\u{df}', '\u{393}', '\u{3c0}', '\u{3a3}', '\u{3c3}', '\u{b5}', '\u{3c4}', '\u{3a6}', '\u{398}', '\u{3a9}', '\u{3b4}',
    '\u{221e}', '\u{3c6}', '\u{3b5}', '\u{2229}', '\u{2261}', '\u{b1}', '\u{2265}', '\u{2264}', '\u{2320}', '\u{2321}', '\u{f7}', '\u{2248}',
    '\u{b0}', '\u{2219}', '\u{b7}', '\u{221a}', '\u{207f}', '\u{b2}', '\u{25a0}', '\u{a0}',
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        const WINDOWS: u8 = 10;
        let cases: [(&[u8], u16, u8, &str); 8] = [
            (b"a/b", 0, HOST_FAT, "a/b"),
            (b"a\\b", 0, HOST_FAT, "a/b"),
            (b"a\\b/c", 0, HOST_FAT, "a\\b/c"),
            (b"a\\b", 0, HOST_UNIX, "a\\b"),
            (b"\x81\xe1", 0, HOST_FAT, "\u{fc}\u{df}"),
            (b"\x81\xff", 0, WINDOWS, "\u{fc}\u{a0}"),
            ("\u{fc}".as_bytes(), 0, HOST_FAT, "\u{fc}"),
            ("\u{fc}".as_bytes(), UTF8, HOST_FAT, "\u{fc}"),
        ];
        for (raw, flags, host, expected) in cases {
            let path = path(raw, flags, host);
            assert_eq!(path, expected.as_bytes(), "{raw:02x?}, {flags:#x}, {host}");
        }
        assert_eq!(&*path(b"\x81", 0, HOST_UNIX), b"\x81");
    }
}
