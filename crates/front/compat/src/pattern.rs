//! Patterns of `unsquashfs` and `mksquashfs`: names in an image, component by component.
//!
//! A pattern selects the entries that it matches, everything below them, and the directories above
//! them. A component is a shell pattern, a regular expression, or a name.

use regex::bytes::Regex;

use super::bracket::{Dialect, class, literal};
use super::extended::extended;

/// The syntax of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Shell patterns with extended groups; `!(...)` only as a whole component.
    Shell,
    /// POSIX extended regular expressions, which match a part of the name.
    Regex,
    Names,
}

enum Component {
    Name(Vec<u8>),
    Pattern {
        regex: Regex,
        takes_hidden: bool,
        /// Inverts the match.
        negated: bool,
    },
}

impl Component {
    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Pattern {
                regex,
                takes_hidden,
                negated,
            } => (*takes_hidden || !name.starts_with(b".")) && regex.is_match(name) != *negated,
        }
    }
}

/// The entries that a command line selects.
pub struct PathChoice {
    /// `None` selects all entries.
    extract: Option<Vec<Vec<Component>>>,
    exclude: Vec<Vec<Component>>,
    max_depth: Option<usize>,
}

impl PathChoice {
    /// Parses the patterns. The error is a message.
    pub fn new(
        extract: &[Vec<u8>],
        exclude: &[Vec<u8>],
        syntax: Syntax,
        max_depth: Option<usize>,
    ) -> Result<Self, String> {
        let all = |patterns: &[Vec<u8>], kind| {
            let parsed = patterns.iter().map(|path| parse(path, syntax, kind));
            parsed.collect::<Result<Vec<_>, _>>()
        };
        let wanted = all(extract, "extract")?;
        Ok(Self {
            extract: (!wanted.is_empty()).then_some(wanted),
            exclude: all(exclude, "exclude")?,
            max_depth,
        })
    }

    /// Returns whether an entry is selected, or is a directory that may contain selected entries.
    /// The path has no leading slash; that of the root is empty.
    pub fn takes(&self, path: &[u8], is_dir: bool) -> bool {
        if path.is_empty() {
            return true;
        }
        let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        if self.max_depth.is_some_and(|depth| names.len() > depth) {
            return false;
        }
        let covers =
            |pattern: &Vec<Component>| pattern.len() <= names.len() && fits(pattern, &names);
        let leads = |pattern: &Vec<Component>| is_dir && fits(pattern, &names);
        let is_wanted = match &self.extract {
            None => true,
            Some(patterns) => patterns
                .iter()
                .any(|pattern| covers(pattern) || leads(pattern)),
        };
        is_wanted && !self.exclude.iter().any(covers)
    }

    /// Returns whether a pattern matches the entry itself, not only a directory above it.
    pub fn names(&self, path: &[u8]) -> bool {
        let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let is_end =
            |pattern: &Vec<Component>| pattern.len() == names.len() && fits(pattern, &names);
        !path.is_empty() && self.extract.iter().flatten().any(is_end)
    }
}

pub struct PathExcludes {
    /// Matched from the root of the tree.
    anchored: Vec<Vec<Component>>,
    anywhere: Vec<Vec<Component>>,
}

impl PathExcludes {
    /// Parses the patterns. Patterns after `... ` match in any directory. The error is a message.
    pub fn new(patterns: &[Vec<u8>], syntax: Syntax) -> Result<Self, String> {
        let mut excludes = Self {
            anchored: Vec::new(),
            anywhere: Vec::new(),
        };
        for pattern in patterns {
            match pattern.strip_prefix(b"... ") {
                Some(pattern) => {
                    let pattern = parse(pattern.trim_ascii_start(), syntax, "exclude")?;
                    excludes.anywhere.push(pattern);
                }
                None => excludes.anchored.push(parse(pattern, syntax, "exclude")?),
            }
        }
        Ok(excludes)
    }

    /// Returns whether a pattern matches this path, which has no leading slash, and not only a
    /// directory above it.
    pub fn match_path(&self, path: &[u8]) -> bool {
        let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let is_whole =
            |pattern: &Vec<Component>| pattern.len() == names.len() && fits(pattern, &names);
        let ends = |pattern: &Vec<Component>| {
            let start = names.len().checked_sub(pattern.len());
            let end = start.and_then(|start| names.get(start..));
            end.is_some_and(|end| fits(pattern, end))
        };
        self.anchored.iter().any(is_whole) || self.anywhere.iter().any(ends)
    }
}

/// Compares the common number of leading components.
fn fits(pattern: &[Component], names: &[&[u8]]) -> bool {
    let mut pairs = pattern.iter().zip(names);
    pairs.all(|(component, name)| component.matches(name))
}

fn parse(path: &[u8], syntax: Syntax, kind: &str) -> Result<Vec<Component>, String> {
    let components = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    let parsed: Result<Vec<_>, _> = components.map(|name| component(name, syntax)).collect();
    let parsed = parsed?;
    if parsed.is_empty() {
        Err(format!(
            "Invalid {kind} file {}",
            String::from_utf8_lossy(path)
        ))
    } else {
        Ok(parsed)
    }
}

fn component(name: &[u8], syntax: Syntax) -> Result<Component, String> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let negated = syntax == Syntax::Shell && is_negated(name);
    let text = match syntax {
        Syntax::Names => return Ok(Component::Name(name.to_vec())),
        Syntax::Shell if !name.iter().any(|byte| b"*?[\\(".contains(byte)) => {
            return Ok(Component::Name(name.to_vec()));
        }
        Syntax::Shell if negated => shell(&[b"@", name.get(1..).unwrap_or_default()].concat())
            .ok_or_else(|| format!("Cannot match \"{}\": !(...) in a group", shown()))?,
        Syntax::Shell => shell(name).ok_or_else(|| {
            format!(
                "Cannot match \"{}\": !(...) is only known as a whole name",
                shown()
            )
        })?,
        Syntax::Regex => extended(name).ok_or_else(|| format!("invalid regex {}", shown()))?,
    };
    let regex = Regex::new(&text).map_err(|_| format!("invalid regex {}", shown()))?;
    let takes_hidden = syntax == Syntax::Regex || negated || name.starts_with(b".");
    Ok(Component::Pattern {
        regex,
        takes_hidden,
        negated,
    })
}

/// Returns whether a pattern is one group `!(...)` and nothing else.
fn is_negated(pattern: &[u8]) -> bool {
    let Some(rest) = pattern.strip_prefix(b"!(") else {
        return false;
    };
    let mut depth = 1_usize;
    let end = rest.iter().position(|byte| {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.is_some_and(|end| end + 1 == rest.len())
}

/// Translates a shell pattern to a regular expression; `None` for `!(...)`.
fn shell(pattern: &[u8]) -> Option<String> {
    let mut out = String::from("(?s-u)^");
    let mut groups = Vec::new();
    let mut rest = pattern;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'?' | b'*' | b'+' | b'@' | b'!' if rest.starts_with(b"(") => {
                groups.push(match byte {
                    b'@' => ")",
                    b'?' => ")?",
                    b'*' => ")*",
                    b'+' => ")+",
                    _ => return None,
                });
                out.push_str("(?:");
                rest = rest.get(1..).unwrap_or_default();
            }
            b'|' if !groups.is_empty() => out.push('|'),
            b')' if !groups.is_empty() => out.push_str(groups.pop().unwrap_or_default()),
            b'?' => out.push('.'),
            b'*' => out.push_str(".*"),
            b'[' => match class(rest, Dialect::Shell) {
                Some((class, after)) => {
                    out.push_str(&class);
                    rest = after;
                }
                None => literal(&mut out, b'['),
            },
            b'\\' => {
                let (escaped, after) = rest.split_first().unwrap_or((&b'\\', b""));
                literal(&mut out, *escaped);
                rest = after;
            }
            byte => literal(&mut out, *byte),
        }
    }
    // A group without an end is not a group. Its contents then match nothing.
    out.push_str(&")".repeat(groups.len()));
    out.push('$');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(pattern: &str, syntax: Syntax, path: &str) -> bool {
        let choice = PathChoice::new(&[pattern.into()], &[], syntax, None);
        choice.is_ok_and(|choice| choice.takes(path.as_bytes(), false))
    }

    #[test]
    fn shell_patterns() {
        for (pattern, path, expected) in [
            ("a", "a", true),
            ("a", "a/b", true),
            ("a/b", "a", false),
            ("/a//b/", "a/b/c", true),
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("*/x", "a/x", true),
            ("*/x", "a/b/x", false),
            ("a?", "ab", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[[:digit:]]*", "7up", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("@(a|bc)", "bc", true),
            ("+(ab).c", "abab.c", true),
            ("?(x)y", "y", true),
            ("a.b", "axb", false),
            ("a(b", "a(b", true),
            ("!(a|b*)", "bc", false),
            ("!(a|b*)", "c", true),
            ("!(a)", ".b", true),
        ] {
            assert_eq!(
                takes(pattern, Syntax::Shell, path),
                expected,
                "{pattern} {path}"
            );
        }
        assert!(PathChoice::new(&[b"x!(a)".to_vec()], &[], Syntax::Shell, None).is_err());
        assert!(PathChoice::new(&[b"//".to_vec()], &[], Syntax::Shell, None).is_err());
    }

    #[test]
    fn other_syntaxes_and_bounds() {
        assert!(takes("d/l", Syntax::Regex, "d/ls"));
        assert!(!takes("^s", Syntax::Regex, "ls"));
        assert!(!takes("d/*", Syntax::Names, "d/ls"));
        let choice = PathChoice::new(
            &[b"a/b/c".to_vec()],
            &[b"a/b/x".to_vec()],
            Syntax::Shell,
            Some(3),
        );
        let choice = choice.unwrap();
        for (path, is_dir, expected) in [
            ("", true, true),
            ("a/b", true, true),
            ("a/b", false, false),
            ("a/x", true, false),
            ("a/b/c", false, true),
            ("a/b/c/d", false, false),
        ] {
            assert_eq!(choice.takes(path.as_bytes(), is_dir), expected, "{path}");
        }
        let excluding = PathChoice::new(&[], &[b"a/*".to_vec()], Syntax::Shell, None).unwrap();
        assert!(excluding.takes(b"a", true) && !excluding.takes(b"a/b/c", false));
    }

    #[test]
    fn excludes_are_anchored_or_anywhere() {
        let patterns = ["a/*.o", "... b/c", "... .git"].map(|text| text.as_bytes().to_vec());
        let excludes = PathExcludes::new(&patterns, Syntax::Shell).unwrap();
        for (path, expected) in [
            ("a/x.o", true),
            ("a/b/x.o", false),
            ("x.o", false),
            ("b/c", true),
            ("a/b/c", true),
            ("b", false),
            ("c", false),
            ("a/.git", true),
            ("a/.git/x", false),
        ] {
            assert_eq!(excludes.match_path(path.as_bytes()), expected, "{path}");
        }
    }
}
