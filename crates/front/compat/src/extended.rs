//! Translates POSIX extended regular expressions, in the dialect of the GNU C library, for the
//! crate `regex`.
//!
//! The two agree on most syntax, but not on backslashes. In brackets, the C library treats a
//! backslash as a member: `[^\x2f]`, which Apptainer passes, is any byte except a backslash, `x`,
//! `2` and `f`. Outside of brackets, `\d` or `\x` is the letter. Expressions that the crate cannot
//! match are refused: back references, equivalence classes and collating symbols.

use std::os::unix::ffi::OsStrExt;

use super::bracket::{Dialect, class, literal};
use super::options::{Parsed, Value};

/// Translates the expression that is the value of an option.
pub fn expression(value: &Value<'_>) -> Parsed<String> {
    match extended(value.given.as_bytes()) {
        Some(expression) => Ok(expression),
        None => value.refuse(format!("{} invalid regex {}", value.name, value.text())),
    }
}

/// Translates an expression. Returns `None` if the C library refuses it or the crate cannot match
/// it.
pub fn extended(expression: &[u8]) -> Option<String> {
    let mut out = String::from("(?s-u)");
    let mut rest = expression;
    let mut depth = 0_usize;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'[' => {
                let (class, after) = class(rest, Dialect::Extended)?;
                out.push_str(&class);
                rest = after;
            }
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                escape(&mut out, *escaped)?;
                rest = after;
            }
            b'{' => {
                let (interval, after) = interval(rest)?;
                out.push_str(&interval);
                rest = after;
            }
            // The crate gives groups of this form other meanings.
            b'(' if matches!(rest, [b'?' | b'*' | b'+', ..]) => return None,
            b'(' => {
                out.push('(');
                depth += 1;
            }
            b')' if depth > 0 => {
                out.push(')');
                depth -= 1;
            }
            b'.' | b'*' | b'+' | b'?' | b'|' | b'^' | b'$' => out.push(char::from(*byte)),
            byte => literal(&mut out, *byte),
        }
    }
    Some(out)
}

/// Translates the byte after a backslash. Some bytes have a meaning in the GNU C library; all
/// others match themselves.
fn escape(out: &mut String, escaped: u8) -> Option<()> {
    match escaped {
        b'w' | b'W' | b's' | b'S' | b'b' | b'B' | b'<' | b'>' => {
            out.push('\\');
            out.push(char::from(escaped));
        }
        b'`' => out.push_str("\\A"),
        b'\'' => out.push_str("\\z"),
        b'1'..=b'9' => return None,
        byte => literal(out, byte),
    }
    Some(())
}

/// Parses an interval after its `{`. Returns the interval in the syntax of the crate `regex`, and
/// the rest of the expression; `None` if the C library refuses it.
fn interval(rest: &[u8]) -> Option<(String, &[u8])> {
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let text = std::str::from_utf8(rest.get(..end)?).ok()?;
    let (least, most) = text.split_once(',').unwrap_or((text, text));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || !is_number(least) || !is_number(most) {
        return None;
    }
    let least = if least.is_empty() { "0" } else { least };
    let comma = if text.contains(',') { "," } else { "" };
    let most = if comma.is_empty() { "" } else { most };
    Some((format!("{{{least}{comma}{most}}}"), rest.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;

    use super::*;

    fn matches(expression: &str, name: &str) -> bool {
        let translated = extended(expression.as_bytes()).unwrap();
        Regex::new(&translated).unwrap().is_match(name.as_bytes())
    }

    #[test]
    fn expressions_match_what_the_c_library_matches() {
        for (expression, name, expected) in [
            ("^ab$", "ab", true),
            ("^ab$", "abc", false),
            ("b+", "abbc", true),
            ("^(a|bc)*$", "abca", true),
            ("[^\\x2f]", "/", true),
            ("[^\\x2f]", "f", false),
            ("[\\d]", "\\", true),
            ("[\\d]", "7", false),
            ("\\d", "7", false),
            ("\\d", "d", true),
            ("\\.", "a", false),
            ("\\.", ".", true),
            ("^\\w+$", "a_1", true),
            ("\\<b", "a b", true),
            ("\\<b", "ab", false),
            ("[a&&b]", "&", true),
            ("[a&&b]", "b", true),
            ("[]x]", "]", true),
            ("[!a]", "!", true),
            ("[[:digit:]-]", "-", true),
            ("^a{2}$", "aa", true),
            ("^a{,2}$", "aaa", false),
            ("^a{1,}$", "aaa", true),
            ("(a)b)$", "ab)", true),
            ("a}", "a}", true),
            ("#b", "a#b", true),
            ("^.{0}[^d]", "dev", false),
            ("^.{0}[^d]", "etc", true),
        ] {
            assert_eq!(matches(expression, name), expected, "{expression} {name}");
        }
        for refused in ["(a)\\1", "[[.a.]]", "[[=a=]]", "[a", "a\\", "(?i)a", "a{x"] {
            assert_eq!(extended(refused.as_bytes()), None, "{refused}");
        }
    }
}
