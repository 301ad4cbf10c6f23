//! Bracket expressions of patterns, `[a-z]` and the like, as classes of the crate `regex`.
//!
//! Every member is written as a number. So nothing in a class has a meaning that the crate alone gives to it, as
//! `&&` or `\d`.

/// The kind of pattern that a bracket expression is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A pattern of a shell: `!` negates too, and a backslash quotes the next byte.
    Shell,
    /// An extended regular expression of POSIX: a backslash is a member as any other byte.
    Extended,
}

/// Adds a byte that stands for itself.
pub fn literal(out: &mut String, byte: u8) {
    out.push_str(&format!("\\x{byte:02x}"));
}

/// Translates what follows a `[`. Returns the class, and the pattern behind it; nothing where it does not end, or
/// has members that are equivalence classes or collating symbols.
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
