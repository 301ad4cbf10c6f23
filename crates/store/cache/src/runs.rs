//! Lists of ranges.

use std::ops::Range;

/// Appends `range`. Extends the last run if `range` is adjacent to it.
pub(crate) fn push(runs: &mut Vec<Range<u64>>, range: Range<u64>) {
    match runs.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => runs.push(range),
    }
}

/// Splits `range` into the runs that lie in none of `others`, and the runs that lie in at least
/// one. `others` may be in any order.
pub(crate) fn split(
    range: &Range<u64>,
    others: &[Range<u64>],
) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let mut cuts: Vec<_> = others
        .iter()
        .map(|other| other.start.max(range.start)..other.end.min(range.end))
        .filter(|cut| !cut.is_empty())
        .collect();
    cuts.sort_by_key(|cut| (cut.start, cut.end));
    let (mut outside, mut inside) = (Vec::new(), Vec::new());
    let mut at = range.start;
    for cut in cuts {
        push(&mut outside, at..cut.start.max(at));
        push(&mut inside, cut.start.max(at)..cut.end.max(at));
        at = at.max(cut.end);
    }
    push(&mut outside, at..range.end);
    (outside, inside)
}

pub(crate) fn total(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_by_others() {
        let check = |others: &[Range<u64>], outside: &[Range<u64>], inside: &[Range<u64>]| {
            let found = split(&(10..20), others);
            assert_eq!(found, (outside.to_vec(), inside.to_vec()), "{others:?}");
        };
        check(&[], &[10..20], &[]);
        check(&[0..10, 20..30], &[10..20], &[]);
        check(&[0..30], &[], &[10..20]);
        check(
            &[15..16, 12..13],
            &[10..12, 13..15, 16..20],
            &[12..13, 15..16],
        );
        check(&[12..18, 13..14, 17..19], &[10..12, 19..20], &[12..19]);
    }
}
