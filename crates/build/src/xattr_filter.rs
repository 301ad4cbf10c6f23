//! Selects the extended attributes that go into an image.

use forerun_vfs::ACL_ACCESS;
use regex::bytes::{Regex, RegexBuilder};

use super::{BuildError, Tree};

/// Maximum size of a compiled expression. Patterns come from the command line, not from images.
const SIZE_LIMIT: usize = 1 << 20;

/// A selection by name. The default keeps all attributes.
#[derive(Clone, Debug, Default)]
pub struct XattrFilter {
    /// Drop all attributes.
    pub none: bool,
    include: Option<Regex>,
    exclude: Option<Regex>,
}

impl XattrFilter {
    /// Returns a filter that keeps only names that match `include`, if it is given, and do not
    /// match `exclude`. Both are regular expressions in the syntax of `mksquashfs`: they match
    /// anywhere in the full name unless they are anchored.
    pub fn new(include: Option<&str>, exclude: Option<&str>) -> Result<Self, BuildError> {
        Ok(Self {
            none: false,
            include: include.map(expression).transpose()?,
            exclude: exclude.map(expression).transpose()?,
        })
    }

    #[must_use]
    pub fn keeps(&self, name: &[u8]) -> bool {
        let is_match = |regex: &Regex| regex.is_match(name);
        !self.none
            && self.include.as_ref().is_none_or(is_match)
            && !self.exclude.as_ref().is_some_and(is_match)
    }

    /// Removes all other attributes. A file that loses its access control list gets the mode for a
    /// file without one.
    pub fn apply(&self, tree: &mut Tree) {
        for node in tree.nodes_mut() {
            if !self.keeps(ACL_ACCESS) {
                node.mode = node.mode_without_acl();
            }
            node.xattrs.retain(|name, _| self.keeps(name));
        }
    }
}

fn expression(pattern: &str) -> Result<Regex, BuildError> {
    let built = RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(SIZE_LIMIT)
        .build();
    built.map_err(|error| BuildError::Pattern {
        pattern: pattern.to_string(),
        reason: match error {
            // The message shows the pattern on several lines; its last line states the error.
            regex::Error::Syntax(message) => {
                let last = message.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_string()
            }
            other => other.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen() {
        for (include, exclude, kept) in [
            (None, None, &["user.a", "user.b", "security.selinux"][..]),
            (Some("^user\\."), None, &["user.a", "user.b"]),
            (None, Some("^user\\."), &["security.selinux"]),
            (Some("^user\\."), Some("b$"), &["user.a"]),
            (Some("selinux"), None, &["security.selinux"]),
        ] {
            let filter = XattrFilter::new(include, exclude).unwrap();
            let mut tree = Tree::default();
            for name in ["user.a", "user.b", "security.selinux"] {
                let xattrs = &mut tree.node_mut(Tree::ROOT).xattrs;
                xattrs.insert(name.into(), Vec::new());
            }
            filter.apply(&mut tree);
            let found: Vec<_> = tree.node(Tree::ROOT).xattrs.keys().cloned().collect();
            let mut expected: Vec<_> = kept.iter().map(|name| name.as_bytes().to_vec()).collect();
            expected.sort();
            assert_eq!(found, expected, "{include:?} {exclude:?}");
        }
        let none = XattrFilter {
            none: true,
            ..XattrFilter::default()
        };
        assert!(!none.keeps(b"user.a"));
        assert!(
            XattrFilter::new(Some("^\\xff"), None)
                .unwrap()
                .keeps(b"\xffa")
        );
    }

    #[test]
    fn what_is_no_expression_is_refused_by_name() {
        let error = XattrFilter::new(None, Some("a(")).unwrap_err();
        assert_eq!(error.to_string(), "pattern \"a(\": unclosed group");
    }
}
