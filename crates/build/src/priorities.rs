//! The order of files in an image by priorities.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::BuildError;
use super::line::{LineError, Words, components, is_blank, lossy};

/// Priorities of paths, from -32768 to 32767. Files of higher priority come earlier in the image.
/// The priority of a directory applies to all paths below it without their own. All other paths
/// have priority 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    paths: HashMap<Vec<u8>, i16>,
}

impl Priorities {
    /// Returns whether everything has priority 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Reads all lines of several files.
    pub fn from_files(paths: &[impl AsRef<Path>]) -> Result<Self, BuildError> {
        let mut priorities = Self::default();
        for path in paths {
            priorities.add_file(path.as_ref())?;
        }
        Ok(priorities)
    }

    /// Adds the lines `PATH PRIORITY` of a file, in the format of `mksquashfs -sort`. The last of
    /// several lines for one path counts. Paths start at the root of the tree.
    pub fn add_file(&mut self, path: &Path) -> Result<(), BuildError> {
        let text = fs::read(path).map_err(|source| BuildError::Host {
            path: path.to_path_buf(),
            source,
        })?;
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            self.add_line(line).map_err(|source| BuildError::Line {
                file: path.to_path_buf(),
                line: number,
                source,
            })?;
        }
        Ok(())
    }

    /// Sets the priority of a path, given without a leading slash.
    pub fn insert(&mut self, path: Vec<u8>, priority: i16) {
        self.paths.insert(path, priority);
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), LineError> {
        if is_blank(line) {
            return Ok(());
        }
        let mut words = Words::new(line);
        let path = components(&words.expect("the path")?)?;
        let word = words.expect("the priority")?;
        words.end()?;
        let number = std::str::from_utf8(&word)
            .ok()
            .and_then(|text| text.parse().ok());
        let priority = number.ok_or_else(|| LineError::Priority(lossy(&word)))?;
        self.paths.insert(path.join(&b'/'), priority);
        Ok(())
    }

    /// Returns the priority of a path, given without a leading slash.
    #[must_use]
    pub fn of(&self, path: &[u8]) -> i16 {
        if self.paths.is_empty() {
            return 0;
        }
        let mut path = path;
        loop {
            if let Some(&priority) = self.paths.get(path) {
                return priority;
            }
            if path.is_empty() {
                return 0;
            }
            let slash = path.iter().rposition(|&byte| byte == b'/');
            path = &path[..slash.unwrap_or(0)];
        }
    }

    /// Returns the paths with their own priority, so that callers can check that these exist.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.paths.keys().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_line_counts() {
        let mut priorities = Priorities::default();
        for line in [
            "# comment",
            "",
            "usr 5",
            "/usr/bin/ -32768",
            "\"a b\" 32767",
            "./c 1",
            "c 2",
        ] {
            priorities.add_line(line.as_bytes()).unwrap();
        }
        for (path, expected) in [
            ("usr", 5),
            ("usr/lib/x", 5),
            ("usr/bin/sh", -32768),
            ("usr/binary", 5),
            ("a b", 32767),
            ("c", 2),
            ("other", 0),
            ("", 0),
        ] {
            assert_eq!(priorities.of(path.as_bytes()), expected, "{path}");
        }
        priorities.add_line(b"/ 7").unwrap();
        assert_eq!(priorities.of(b"other/x"), 7);
    }

    #[test]
    fn mistakes_are_told() {
        for (line, message) in [
            ("a", "the priority is missing"),
            ("a x", "priority \"x\" is not a number from -32768 to 32767"),
            (
                "a 32768",
                "priority \"32768\" is not a number from -32768 to 32767",
            ),
            ("a 1 2", "unexpected \"2\" at the end"),
            ("../a 1", "path \"../a\": name is . or .."),
        ] {
            let error = Priorities::default().add_line(line.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message, "{line}");
        }
    }
}
