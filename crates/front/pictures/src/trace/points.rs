//! The requests that a graph shows individually: all of them, or every second, fourth, eighth and
//! so on if there are too many.

use serde_json::Value;

const MOST: usize = 2048;

/// A request as a point or a short line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Start in microseconds.
    pub start: u64,
    /// Duration in microseconds.
    pub took: u64,
    pub offset: u64,
    pub len: u64,
    pub blob: u64,
    pub failed: bool,
}

#[derive(Clone, Debug)]
pub struct Points {
    /// Keeps one of this many requests.
    pub every: u64,
    seen: u64,
    kept: Vec<Point>,
}

impl Default for Points {
    fn default() -> Self {
        Self {
            every: 1,
            seen: 0,
            kept: Vec::new(),
        }
    }
}

impl Points {
    /// Adds a point unless it is thinned out.
    pub fn add(&mut self, point: Point) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() >= MOST {
                let mut is_kept = false;
                self.kept.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.every = self.every.saturating_mul(2);
            }
            if self.seen.is_multiple_of(self.every) {
                self.kept.push(point);
            }
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// Returns the points as lists of start, duration, offset, length, blob, and 1 for a failure.
    pub fn json(&self) -> Value {
        let list = |point: &Point| {
            Value::from(vec![
                point.start,
                point.took,
                point.offset,
                point.len,
                point.blob,
                u64::from(point.failed),
            ])
        };
        self.kept.iter().map(list).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_points_are_thinned_evenly() {
        let mut points = Points::default();
        for start in 0..100_000 {
            points.add(Point {
                start,
                took: 0,
                offset: 0,
                len: 0,
                blob: 0,
                failed: false,
            });
        }
        assert_eq!(points.every, 64);
        assert_eq!(points.kept.len(), 100_000_usize.div_ceil(64));
        assert!(points.kept.iter().all(|point| point.start % 64 == 0));
    }
}
