//! Parses the value of a header parameter: a token or a quoted string (RFC 9110, section 5.6).

/// Parses a value at the start of `text`. Returns it with the text after it. A token ends before
/// one of `ends`.
pub fn value<'t>(text: &'t str, ends: &[char]) -> Option<(String, &'t str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(ends).unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        return Some((value.to_string(), after));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}
