//! Replaces the owners of the input.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::line::{LineError, is_blank, lossy};
use super::{BuildError, Tree};

/// The id above the largest one. chown(2) takes it as "no change".
const NOBODY: u64 = 0xFFFF_FFFF;

/// A map of user or group ids, from ranges to ranges of the same length. Ids outside of all ranges
/// stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    /// By the first id of a range: the id that replaces it, and the length.
    ranges: BTreeMap<u32, (u32, u32)>,
}

impl IdMap {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds a range, as `FROM:TO` or `FROM:TO:COUNT`, or with spaces instead of colons. Fails if it
    /// overlaps another one.
    pub fn add(&mut self, range: &str) -> Result<(), LineError> {
        let bad = || LineError::Range(range.to_string());
        let separators = |char: char| char == ':' || char.is_ascii_whitespace();
        let words = range.split(separators).filter(|word| !word.is_empty());
        let numbers = words.map(|word| word.parse::<u32>().map_err(|_| bad()));
        let numbers: Vec<u32> = numbers.collect::<Result<_, _>>()?;
        let (from, to, count) = match *numbers.as_slice() {
            [from, to] => (from, to, 1),
            [from, to, count] if count > 0 => (from, to, count),
            _ => return Err(bad()),
        };
        let fits = |first: u32| u64::from(first) + u64::from(count) <= NOBODY;
        if !fits(from) || !fits(to) {
            return Err(bad());
        }
        let last = from + (count - 1);
        let below = self.ranges.range(..=last).next_back();
        if below.is_some_and(|(&first, &(_, count))| first + (count - 1) >= from) {
            return Err(LineError::Overlap(range.to_string()));
        }
        self.ranges.insert(from, (to, count));
        Ok(())
    }

    /// Adds the ranges of a file, one per line, as in `/proc/PID/uid_map`. Empty lines and lines
    /// that start with `#` are skipped.
    pub fn add_file(&mut self, path: &Path) -> Result<(), BuildError> {
        let text = fs::read(path).map_err(|source| BuildError::Host {
            path: path.to_path_buf(),
            source,
        })?;
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            if is_blank(line) {
                continue;
            }
            self.add(lossy(line).trim())
                .map_err(|source| BuildError::Line {
                    file: path.to_path_buf(),
                    line: number,
                    source,
                })?;
        }
        Ok(())
    }

    #[must_use]
    pub fn map(&self, id: u32) -> u32 {
        match self.ranges.range(..=id).next_back() {
            Some((first, (to, count))) if id - first < *count => to + (id - first),
            _ => id,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// One user for all nodes, instead of the map of users.
    pub uid: Option<u32>,
    /// One group for all nodes, instead of the map of groups.
    pub gid: Option<u32>,
    pub uids: IdMap,
    pub gids: IdMap,
}

impl Owners {
    pub fn apply(&self, tree: &mut Tree) {
        for node in tree.nodes_mut() {
            node.uid = self.uid.unwrap_or_else(|| self.uids.map(node.uid));
            node.gid = self.gid.unwrap_or_else(|| self.gids.map(node.gid));
        }
    }
}

/// Adds to all owners and groups. Returns false if one would be above 4294967295.
pub fn shift_owners(tree: &mut Tree, uid: u32, gid: u32) -> bool {
    tree.nodes_mut().all(|node| {
        let moved = node.uid.checked_add(uid).zip(node.gid.checked_add(gid));
        moved.is_some_and(|moved| {
            (node.uid, node.gid) = moved;
            true
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ranges: &[&str]) -> Result<IdMap, LineError> {
        let mut map = IdMap::default();
        ranges.iter().try_for_each(|range| map.add(range))?;
        Ok(map)
    }

    #[test]
    fn ranges_map_to_ranges() {
        let map = map(&["0:100000:65536", "70000:5", "4294967294:0"]).unwrap();
        for (id, expected) in [
            (0, 100_000),
            (65_535, 165_535),
            (65_536, 65_536),
            (69_999, 69_999),
            (70_000, 5),
            (70_001, 70_001),
            (u32::MAX - 1, 0),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(map.map(id), expected, "{id}");
        }
        assert_eq!(IdMap::default().map(7), 7);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for range in [
            "",
            "1",
            "1:2:0",
            "1:2:3:4",
            "a:1",
            "-1:1",
            "0:0:4294967296",
            "1:1:4294967295",
            "4294967295:1",
        ] {
            let error = map(&[range]).unwrap_err();
            assert!(matches!(error, LineError::Range(_)), "{range}: {error}");
        }
        for ranges in [
            ["0:0:10", "9:1"],
            ["5:0:10", "0:0:6"],
            ["5:1", "0:0:100"],
            ["7:1", "7:2"],
        ] {
            let error = map(&ranges).unwrap_err();
            assert!(
                matches!(error, LineError::Overlap(_)),
                "{ranges:?}: {error}"
            );
        }
        assert!(map(&["0:0:5", "5:5:5", "10:1"]).is_ok());
    }

    #[test]
    fn one_owner_wins_over_the_map() {
        let mut tree = Tree::default();
        (tree.node_mut(Tree::ROOT).uid, tree.node_mut(Tree::ROOT).gid) = (3, 4);
        let mut owners = Owners {
            uids: map(&["3:30"]).unwrap(),
            gids: map(&["4:40"]).unwrap(),
            ..Owners::default()
        };
        owners.apply(&mut tree);
        let root = tree.node(Tree::ROOT);
        assert_eq!((root.uid, root.gid), (30, 40));
        owners.uid = Some(0);
        owners.apply(&mut tree);
        let root = tree.node(Tree::ROOT);
        assert_eq!((root.uid, root.gid), (0, 40));
    }
}
