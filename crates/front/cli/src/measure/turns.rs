//! The order of runs: everything once per round, and the drivers of a row in turn.

/// Returns the order of runs for series with these rows, as pairs of a round (from 1) and an index.
/// Each round takes row by row, and the series of a row in the order of the list. Every second
/// round reverses the order within a row, so that a slow minute of the machine, and the state in
/// which a driver leaves it, affect all drivers.
pub fn turns<R: PartialEq>(rows: &[R], rounds: u32) -> Vec<(u32, usize)> {
    let first_of = |row: &R| rows.iter().position(|other| other == row);
    let mut series: Vec<usize> = (0..rows.len()).collect();
    series.sort_by_key(|&series| rows.get(series).and_then(first_of));
    let by_row = |a: &usize, b: &usize| rows.get(*a) == rows.get(*b);
    let mut order = Vec::new();
    for round in 1..=rounds {
        for row in series.chunk_by(by_row) {
            let row = row.iter().map(|&series| (round, series));
            if round % 2 == 0 {
                order.extend(row.rev());
            } else {
                order.extend(row);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_is_the_other_way_round() {
        let expected = [
            [(1, 0), (1, 1), (1, 3), (1, 2)],
            [(2, 3), (2, 1), (2, 0), (2, 2)],
            [(3, 0), (3, 1), (3, 3), (3, 2)],
        ];
        assert_eq!(turns(&["cat", "cat", "ls", "cat"], 3), expected.concat());
        assert!(turns::<u8>(&[], 3).is_empty());
    }
}
