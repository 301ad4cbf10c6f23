//! Patterns of `--appimage-extract`.

/// Returns whether a pattern matches a path or one of its parent directories. `*` and `?` do not
/// match slashes.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let pattern = simplified(pattern);
    // A pattern for the root matches everything.
    let above = (0..path.len()).filter(|&at| path.get(at) == Some(&b'/'));
    pattern.is_empty()
        || above
            .chain([path.len()])
            .any(|end| whole(pattern, &path[..end]))
}

/// Returns the pattern without `squashfs-root/`, `./` or `/` in front and without trailing slashes.
fn simplified(pattern: &[u8]) -> &[u8] {
    let mut pattern = pattern;
    for root in [&b"squashfs-root/"[..], b"./", b"/"] {
        pattern = pattern.strip_prefix(root).unwrap_or(pattern);
    }
    while let Some(shorter) = pattern.strip_suffix(b"/") {
        pattern = shorter;
    }
    pattern
}

/// Returns whether a pattern matches the whole text. Backtracks only to the last star, so the time
/// is at most the product of both lengths.
fn whole(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Position after the last star, and the first byte that the star does not cover.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let rest = &pattern[at..];
        let byte = text.get(place).copied();
        if rest.first() == Some(&b'*') {
            at += 1;
            star = Some((at, place));
            continue;
        }
        match (one(rest, byte), byte) {
            (Some(len), _) => {
                at += len;
                place += 1;
            }
            (None, None) if rest.is_empty() => return true,
            _ => match star {
                Some((behind, from)) if text.get(from).is_some_and(|&byte| byte != b'/') => {
                    star = Some((behind, from + 1));
                    (at, place) = (behind, from + 1);
                }
                _ => return false,
            },
        }
    }
}

/// Returns the length of the pattern's first element if it matches the byte.
fn one(pattern: &[u8], byte: Option<u8>) -> Option<usize> {
    let byte = byte?;
    match pattern.first()? {
        b'?' => (byte != b'/').then_some(1),
        b'[' => match set(pattern) {
            Some((len, bounds, negated)) => {
                let mut ranges = bounds.into_iter();
                let inside = ranges.any(|(low, high)| (low..=high).contains(&byte));
                (inside != negated && byte != b'/').then_some(len)
            }
            None => (byte == b'[').then_some(1),
        },
        b'\\' if pattern.len() > 1 => (pattern.get(1) == Some(&byte)).then_some(2),
        first => (*first == byte).then_some(1),
    }
}

/// A bracket expression: its length, its ranges, and whether it is negated.
type Set = (usize, Vec<(u8, u8)>, bool);

/// Parses the bracket expression at the start of a pattern; `None` if it is not closed.
fn set(pattern: &[u8]) -> Option<Set> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let mut at = start;
    let mut ranges = Vec::new();
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > start {
            return Some((at + 1, ranges, negated));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                ranges.push((low, high));
                at += 3;
            }
            _ => {
                ranges.push((low, low));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn table() {
        for (pattern, path, expected) in [
            ("usr", "usr/bin/a", true),
            ("usr/", "usr/bin/a", true),
            ("usr/*", "usr/bin/a", true),
            ("usr/*", "usr", false),
            ("*.desktop", "a.desktop", true),
            ("*.desktop", "usr/a.desktop", false),
            ("usr/*/a", "usr/bin/a", true),
            ("usr/*/a", "usr/bin/b/a", false),
            ("/usr/bin", "usr/bin/a", true),
            ("squashfs-root/AppRun", "AppRun", true),
            ("", "a", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[]]x", "]x", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", "", true),
            ("a**", "a", true),
        ] {
            let found = matches(pattern.as_bytes(), path.as_bytes());
            assert_eq!(found, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "a*".repeat(2000);
        let text = "a".repeat(4000);
        assert!(matches(pattern.as_bytes(), text.as_bytes()));
        assert!(!matches(format!("{pattern}b").as_bytes(), text.as_bytes()));
    }
}
