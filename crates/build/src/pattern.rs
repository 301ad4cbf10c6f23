//! Patterns of paths: files to exclude from an image, or to extract from one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::BuildError;

/// A set of glob patterns over paths as bytes.
///
/// `*` and `?` stay inside one component, `**` crosses components, `[...]` and `{a,b}` work as in a
/// shell. A pattern with a slash is matched against the whole path from the root; a leading slash
/// changes nothing. A pattern without a slash is matched against the last component. A match of a
/// directory covers everything below it.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    whole: GlobSet,
    last: GlobSet,
    len: usize,
    rule: Option<Rule>,
}

type MatchPath = dyn Fn(&[u8]) -> bool + Send + Sync;

/// A predicate of the caller, for patterns of another syntax.
#[derive(Clone)]
struct Rule(Arc<MatchPath>);

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rule")
    }
}

impl Patterns {
    /// Returns a set that matches the paths for which `rule` returns true.
    #[must_use]
    pub fn from_rule(rule: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            rule: Some(Rule(Arc::new(rule))),
            ..Self::default()
        }
    }

    pub fn new<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, BuildError> {
        let (mut whole, mut last, mut len) = (GlobSetBuilder::new(), GlobSetBuilder::new(), 0);
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let failed = |reason: String| BuildError::Pattern {
                pattern: pattern.to_string(),
                reason,
            };
            let trimmed = pattern.trim_start_matches("./").trim_matches('/');
            if trimmed.is_empty() {
                return Err(failed("it is empty".to_string()));
            }
            let glob = GlobBuilder::new(trimmed)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            let glob = glob.map_err(|error| failed(error.kind().to_string()))?;
            let anchored = trimmed.contains('/') || pattern.starts_with('/');
            if anchored {
                whole.add(glob)
            } else {
                last.add(glob)
            };
            len += 1;
        }
        let built = |set: GlobSetBuilder| {
            set.build().map_err(|error| BuildError::Pattern {
                pattern: "all".into(),
                reason: error.to_string(),
            })
        };
        Ok(Self {
            whole: built(whole)?,
            last: built(last)?,
            len,
            rule: None,
        })
    }

    /// Returns whether the set matches nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0 && self.rule.is_none()
    }

    /// Returns whether a pattern matches this path, given without a leading slash. Ignores the
    /// directories above it.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        self.whole.is_match(OsStr::from_bytes(path))
            || self.last.is_match(OsStr::from_bytes(last))
            || self.rule.as_ref().is_some_and(|rule| (rule.0)(path))
    }

    /// Returns whether a pattern matches this path or a directory above it.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        let slashes = path
            .iter()
            .enumerate()
            .filter(|&(_, &byte)| byte == b'/')
            .map(|(at, _)| at);
        let mut ends = slashes.chain([path.len()]);
        !self.is_empty() && ends.any(|end| self.matches(&path[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        for (pattern, path, matches, covers) in [
            ("*.o", "a.o", true, true),
            ("*.o", "dir/a.o", true, true),
            ("*.o", "a.o/b", false, true),
            ("dir/*", "dir/a", true, true),
            ("dir/*", "dir/a/b", false, true),
            ("dir/**", "dir/a/b", true, true),
            ("/a", "a", true, true),
            ("/a", "dir/a", false, false),
            ("a", "dir/a", true, true),
            ("./dir/a/", "dir/a", true, true),
            ("[ab]?{x,y}", "b1y", true, true),
            ("\\*", "*", true, true),
            ("\\*", "a", false, false),
        ] {
            let patterns = Patterns::new([pattern]).unwrap();
            assert_eq!(
                patterns.matches(path.as_bytes()),
                matches,
                "{pattern} {path}"
            );
            assert_eq!(patterns.covers(path.as_bytes()), covers, "{pattern} {path}");
        }
        assert!(Patterns::new(["*"]).unwrap().matches(b"\xff\xfe"));
        assert!(!Patterns::default().covers(b"a"));
        let rule = Patterns::from_rule(|path| path == b"dir/a");
        assert!(rule.covers(b"dir/a/b") && !rule.matches(b"dir") && !rule.is_empty());
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_name() {
        for pattern in ["[", "", "/", "{a"] {
            let error = Patterns::new(["fine", pattern]).unwrap_err();
            assert!(
                matches!(error, BuildError::Pattern { pattern: named, .. } if named == pattern)
            );
        }
    }
}
