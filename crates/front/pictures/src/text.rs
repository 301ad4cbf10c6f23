//! Names from images as text for pages.

use std::fmt::Write as _;

const NAME: usize = 64;
const PATH: usize = 240;

/// Converts a name to text. Bytes that are not printable text become `\ooo`; a long name is
/// truncated.
pub fn name(bytes: &[u8]) -> String {
    cut(bytes, NAME)
}

/// Converts a path like [`name`], but truncates a long path at its start.
pub fn path(bytes: &[u8]) -> String {
    match bytes.len().checked_sub(PATH) {
        Some(over) if over > 0 => {
            let end = bytes.get(over..).unwrap_or_default();
            format!("\u{2026}{}", cut(end, PATH))
        }
        _ => cut(bytes, PATH),
    }
}

fn cut(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if text.len() >= most {
                text.push('\u{2026}');
                return text;
            }
            if is_plain(char) {
                text.push(char)
            } else {
                octal(&mut text, char.encode_utf8(&mut [0; 4]).as_bytes())
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text
}

fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\{byte:03o}");
    }
}

/// Returns whether a character is neither a control character nor one that changes text direction.
fn is_plain(char: char) -> bool {
    let is_mark = matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !char.is_control() && !is_mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_short() {
        for (bytes, expected) in [
            (&b"plain"[..], "plain"),
            (b"a\n\x1b\xff", "a\\012\\033\\377"),
            ("\u{202e}x".as_bytes(), "\\342\\200\\256x"),
            (b"</script>", "</script>"),
        ] {
            assert_eq!(name(bytes), expected);
        }
        assert_eq!(name(&[b'x'; 4096]).len(), NAME + 3);
        assert!(path(&[b'x'; 4096]).starts_with('\u{2026}'));
    }
}
