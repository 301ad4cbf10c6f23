//! Escapes names for terminals.
//!
//! A name in an image may contain any bytes except `/` and NUL: line breaks, escape sequences that
//! change the colours or title of a terminal, marks that reverse the direction of text. For people
//! they are escaped as in C, like `ls -b` does; for programs they stay unchanged.

use std::fmt::Write as _;

use forerun::unstable::remote::is_plain;

/// Escapes everything in `name` that is not plain text: as `\n`, `\t`, `\\`, or `\ooo` per byte.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                char => push(&mut text, char),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text
}

/// Makes a message safe for one line, because control characters in it come from the image.
pub fn printable(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for char in message.chars() {
        push(&mut text, char);
    }
    text
}

/// Appends a character other than a backslash, escaped if it is not plain text.
fn push(text: &mut String, char: char) {
    match char {
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        char if is_plain(char) => text.push(char),
        char => octal(text, char.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Quotes a name for a shell if it needs that.
pub fn quoted(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+:".contains(char);
    let name = printable(name);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        name
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, expected) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            ("\u{e9}t\u{e9}".as_bytes(), "\u{e9}t\u{e9}"),
            (b"a\nb\tc\\d", "a\\nb\\tc\\\\d"),
            (b"\x1b[31mred", "\\033[31mred"),
            (b"\xff\xfe", "\\377\\376"),
            ("a\u{202e}gpj.exe".as_bytes(), "a\\342\\200\\256gpj.exe"),
            (b"", ""),
        ] {
            assert_eq!(escape(name), expected, "{name:?}");
        }
        for (message, expected) in [
            ("a \\ b\u{7}", "a \\ b\\007"),
            ("/a\nb: damaged\r", "/a\\nb: damaged\\r"),
            ("a\tb", "a\\tb"),
        ] {
            assert_eq!(printable(message), expected, "{message:?}");
        }
    }
}
