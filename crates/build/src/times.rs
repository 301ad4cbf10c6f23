use forerun_vfs::Timestamp;

use super::Tree;

/// Changes to the times of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// One time for all nodes.
    pub all: Option<Timestamp>,
    /// Upper bound: later times are set to this, as `SOURCE_DATE_EPOCH` requires.
    pub latest: Option<Timestamp>,
}

impl Times {
    #[must_use]
    pub fn of(&self, time: Timestamp) -> Timestamp {
        let time = self.all.unwrap_or(time);
        self.latest.map_or(time, |latest| time.min(latest))
    }

    pub fn apply(&self, tree: &mut Tree) {
        for node in tree.nodes_mut() {
            node.mtime = self.of(node.mtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = |seconds, nanoseconds| Timestamp {
            seconds,
            nanoseconds,
        };
        for (all, latest, time, expected) in [
            (None, None, at(5, 7), at(5, 7)),
            (Some(at(3, 0)), None, at(5, 7), at(3, 0)),
            (None, Some(at(5, 0)), at(5, 7), at(5, 0)),
            (None, Some(at(6, 0)), at(5, 7), at(5, 7)),
            (Some(at(9, 0)), Some(at(6, 0)), at(5, 7), at(6, 0)),
        ] {
            let mut tree = Tree::default();
            tree.node_mut(Tree::ROOT).mtime = time;
            Times { all, latest }.apply(&mut tree);
            assert_eq!(tree.node(Tree::ROOT).mtime, expected);
        }
    }
}
