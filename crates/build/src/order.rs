use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::BuildError;
use super::line::{LineError, Words, components, is_blank};

/// Paths in the order in which an image should store their files, for example the order of a
/// recorded start. A directory stands for all files below it that are not listed themselves. Files
/// that are not listed come last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    paths: HashMap<Vec<u8>, usize>,
}

impl Order {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Reads a file with one path per line. Paths start at the root of the tree, and are quoted as
    /// in manifests. The first of several lines for one path counts. Empty lines and lines that
    /// start with `#` are skipped.
    pub fn from_file(path: &Path) -> Result<Self, BuildError> {
        let text = fs::read(path).map_err(|source| BuildError::Host {
            path: path.to_path_buf(),
            source,
        })?;
        let mut order = Self::default();
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            order.add_line(line).map_err(|source| BuildError::Line {
                file: path.to_path_buf(),
                line: number,
                source,
            })?;
        }
        Ok(order)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), LineError> {
        if is_blank(line) {
            return Ok(());
        }
        let mut words = Words::new(line);
        let path = components(&words.expect("the path")?)?;
        words.end()?;
        self.add(path.join(&b'/'));
        Ok(())
    }

    /// Adds a path, without a leading slash, at the end. Ignores a path that is listed already.
    pub fn add(&mut self, path: Vec<u8>) {
        let next = self.paths.len();
        self.paths.entry(path).or_insert(next);
    }

    /// Returns the position of a path, given without a leading slash. A lower position is earlier.
    #[must_use]
    pub fn of(&self, path: &[u8]) -> usize {
        let mut path = path;
        loop {
            if let Some(&place) = self.paths.get(path) {
                return place;
            }
            if path.is_empty() {
                return usize::MAX;
            }
            let slash = path.iter().rposition(|&byte| byte == b'/');
            path = &path[..slash.unwrap_or(0)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_places() {
        let mut order = Order::default();
        assert!(order.is_empty());
        for line in [
            "# first",
            "",
            "/usr/bin/sh",
            "\"a b\"",
            "usr",
            "a\\ b",
            "./usr/bin/sh",
        ] {
            order.add_line(line.as_bytes()).unwrap();
        }
        for (path, place) in [
            ("usr/bin/sh", 0),
            ("a b", 1),
            ("usr/bin/ls", 2),
            ("usr", 2),
            ("user", usize::MAX),
        ] {
            assert_eq!(order.of(path.as_bytes()), place, "{path}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (line, message) in [
            ("a b", "unexpected \"b\" at the end"),
            ("../a", "path \"../a\": name is . or .."),
        ] {
            let error = Order::default().add_line(line.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message, "{line}");
        }
    }
}
