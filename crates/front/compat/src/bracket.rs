//! Translates bracket expressions of patterns, such as `[a-z]`, to classes of the crate `regex`.
//!
//! Every member is written as a number, so that syntax of the crate such as `&&` or `\d` cannot
//! occur in a class.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A shell pattern: `!` negates too, and a backslash quotes the next byte.
    Shell,
    /// A POSIX extended regular expression: a backslash is an ordinary member.
    Extended,
}

/// Appends a byte that matches itself.
pub fn literal(out: &mut String, byte: u8) {
    out.push_str(&format!("\\x{byte:02x}"));
}

/// Translates the pattern after a `[`. Returns the class, and the pattern after the closing
/// bracket. Returns `None` without a closing bracket, or for equivalence classes and collating
/// symbols.
pub fn class(rest: &[u8], dialect: Dialect) -> Option<(String, &[u8])> {
    let (negated, mut rest) = match rest {
        [b'^', rest @ ..] => (true, rest),
        [b'!', rest @ ..] if dialect == Dialect::Shell => (true, rest),
        rest => (false, rest),
    };
    let mut out = String::from(if negated { "[^" } else { "[" });
    let mut is_first = true;
    loop {
        let (byte, after) = rest.split_first()?;
        match byte {
            b']' if !is_first => {
                out.push(']');
                return Some((out, after));
            }
            b'[' if after.starts_with(b":") => {
                let end = after.windows(2).position(|pair| pair == b":]")?;
                let name = std::str::from_utf8(after.get(1..end)?).ok()?;
                out.push_str(&format!("[:{name}:]"));
                rest = after.get(end + 2..)?;
                is_first = false;
                continue;
            }
            b'[' if dialect == Dialect::Extended && matches!(after, [b'.' | b'=', ..]) => {
                return None;
            }
            b'-' if !is_first && !after.starts_with(b"]") => out.push('-'),
            b'\\' if dialect == Dialect::Shell => {
                let (escaped, after) = after.split_first()?;
                literal(&mut out, *escaped);
                (rest, is_first) = (after, false);
                continue;
            }
            byte => literal(&mut out, *byte),
        }
        (rest, is_first) = (after, false);
    }
}
