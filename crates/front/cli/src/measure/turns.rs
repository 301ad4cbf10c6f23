//! The order of runs: everything once in each round, and the drivers of a row in turn.

/// One run in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The round, from 1 on.
    pub round: u32,
    /// The place of the series in the list.
    pub series: usize,
}

/// Returns the order for series with these rows: row by row, and within a row in the order of the list. Every
/// second round has the order within a row reversed, so that a slow minute of the machine, and the state
/// in which a driver leaves it, meet all of them.
pub fn turns<R: PartialEq>(rows: &[R], rounds: u32) -> Vec<Turn> {
    let mut order = Vec::new();
    for round in 1..=rounds {
        let mut seen: Vec<&R> = Vec::new();
        for row in rows {
            if seen.contains(&row) {
                continue;
            }
            seen.push(row);
            let of_row = rows.iter().enumerate().filter(|(_, other)| *other == row);
            let mut of_row: Vec<Turn> = of_row.map(|(series, _)| Turn { round, series }).collect();
            if round % 2 == 0 {
                of_row.reverse();
            }
            order.append(&mut of_row);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_is_the_other_way_round() {
        let order: Vec<(u32, usize)> = turns(&["cat", "cat", "ls", "cat"], 3)
            .into_iter()
            .map(|turn| (turn.round, turn.series))
            .collect();
        let expected = [
            [(1, 0), (1, 1), (1, 3), (1, 2)],
            [(2, 3), (2, 1), (2, 0), (2, 2)],
            [(3, 0), (3, 1), (3, 3), (3, 2)],
        ];
        assert_eq!(order, expected.concat());
        assert!(turns::<u8>(&[], 3).is_empty());
    }
}
