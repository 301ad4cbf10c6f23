//! The user and group IDs mapped in a user namespace.
//!
//! The kernel has no ID for an owner that a mount's namespace does not map. It shows the overflow
//! user (65534) and refuses with EOVERFLOW to store the owner elsewhere: an overlayfs on top of the
//! mount cannot copy up such a file.

use std::ops::RangeInclusive;

/// The IDs in one map of a user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(Vec<RangeInclusive<u32>>);

impl IdMap {
    /// Reads the mapped user IDs of this process; all IDs if the map cannot be read.
    pub fn of_users() -> Self {
        Self::read("/proc/self/uid_map")
    }

    /// Reads the mapped group IDs of this process; all IDs if the map cannot be read.
    pub fn of_groups() -> Self {
        Self::read("/proc/self/gid_map")
    }

    fn read(path: &str) -> Self {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) => {
                tracing::debug!("{path}: {error}");
                Self(vec![0..=u32::MAX])
            }
        }
    }

    /// Parses the lines of a map: first ID inside, first ID outside, count.
    fn parse(text: &str) -> Self {
        let range = |line: &str| {
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            let first = numbers.next()?.ok()?;
            let count = numbers.nth(1)?.ok()?;
            let last = first.checked_add(count.checked_sub(1)?)?;
            Some(first..=last)
        };
        Self(text.lines().filter_map(range).collect())
    }

    /// Returns `id` if the namespace maps it, otherwise `stand_in`.
    pub fn shown(&self, id: u32, stand_in: u32) -> u32 {
        if self.0.iter().any(|range| range.contains(&id)) {
            id
        } else {
            stand_in
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_map_lacks_get_the_stand_in() {
        let table = [
            // The initial namespace.
            (
                "         0          0 4294967295\n",
                [0, 1000, 4_294_967_294],
            ),
            // unshare --map-root-user
            ("         0       1000          1\n", [0, 7, 7]),
            // With subordinate IDs.
            ("0 1000 1\n1 100000 65536\n", [0, 1000, 7]),
            // No map yet, and invalid lines.
            ("", [7, 7, 7]),
            ("0 0\n0 1 x\n0 0 0\n4294967295 0 2\n", [7, 7, 7]),
        ];
        for (text, expected) in table {
            let map = IdMap::parse(text);
            let shown = [0, 1000, 4_294_967_294].map(|id| map.shown(id, 7));
            assert_eq!(shown, expected, "{text:?}");
        }
    }
}
