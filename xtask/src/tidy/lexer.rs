//! Rust source without its comments and literals, so that a word in a comment is not an import.

/// Blanks out comments, strings and characters in `text`; lines and columns stay.
pub fn code_only(text: &str) -> String {
    blanked(text, |_| true)
}

/// Blanks out the comments in `text`; lines and columns stay.
pub fn comments_blanked(text: &str) -> String {
    blanked(text, |first| first == b'/')
}

/// Blanks out the comments and literals whose first byte is `chosen`.
fn blanked(text: &str, chosen: fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_end(bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        if chosen(bytes[at]) {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    // Only whole comments and literals were blanked, byte for byte with ASCII.
    String::from_utf8_lossy(&out).into_owned()
}

/// Finds the end of the comment or literal that begins at `at`, if one does.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(find(bytes, at, b'\n'));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    match rest[0] {
        b'"' => Some(quoted_end(bytes, at + 1, b'"')),
        b'\'' => char_end(bytes, at),
        b'r' if !continues_word(bytes, at) => raw_end(bytes, at + 1),
        b'b' if rest.starts_with(b"br") && !continues_word(bytes, at) => raw_end(bytes, at + 2),
        _ => None,
    }
}

fn continues_word(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    before.is_some_and(|&byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> usize {
    let found = bytes[from..].iter().position(|&byte| byte == wanted);
    found.map_or(bytes.len(), |offset| from + offset)
}

/// Finds the end of a block comment; these nest.
fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn quoted_end(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Finds the end of a character, which is not a lifetime: `'a'` has a quote after it, `'a` has none.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return Some(quoted_end(bytes, at + 1, b'\''));
    }
    // A character of up to four bytes.
    let end = (at + 2..at + 6).find(|&end| bytes.get(end) == Some(&b'\''))?;
    let inside = std::str::from_utf8(&bytes[at + 1..end]).ok()?;
    (inside.chars().count() == 1).then_some(end + 1)
}

/// Finds the end of a raw string from after its `r`.
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = at + hashes + 1;
    let found = bytes[body..]
        .windows(close.len())
        .position(|window| window == close);
    Some(found.map_or(bytes.len(), |offset| body + offset + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_leaves_literals() {
        for (text, left) in [
            ("a \"// b\" // c", "a \"// b\"     "),
            ("'/' /* 'd' */ \"e\"", "'/'           \"e\""),
        ] {
            assert_eq!(comments_blanked(text), left, "{text:?}");
        }
    }

    #[test]
    fn blanks_what_is_not_code() {
        for (text, code) in [
            ("use a; // b\nc", "use a;     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("f(\"a \\\" b\", c)", "f(        , c)"),
            ("r\"a\\\" b", "      b"),
            ("r#\"a\"b\"# c", "         c"),
            ("br##\"\"#\"## c", "           c"),
            ("b\"x\" y", "b    y"),
            ("'a' 'b 'c'", "    'b    "),
            ("'\\'' x", "     x"),
            ("'\\\\' x", "     x"),
            ("'\u{e9}' x", "     x"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("for\"x\"", "for   "),
            ("r#type", "r#type"),
            ("\"never closed", "             "),
        ] {
            assert_eq!(code_only(text), code, "{text:?}");
        }
    }
}
