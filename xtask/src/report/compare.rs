//! Two reports against each other.

use anyhow::{Result, ensure};

use super::kept::{KeptFigures, KeptRecord};
use crate::bench::{NOISE, Ratio};

/// The ratios of one comparison in two reports.
#[derive(Clone, Debug, PartialEq)]
struct RatioPair {
    what: String,
    ratios: [f64; 2],
    /// Whether one of both is marked.
    is_noisy: bool,
}

impl RatioPair {
    fn differs(&self) -> bool {
        let [one, other] = self.ratios;
        one.max(other) > one.min(other) * (1.0 + NOISE)
    }
}

/// Prints the ratios that differ. Fails where one is not marked as noisy.
pub fn run(ours: &KeptFigures, other: &KeptFigures) -> Result<()> {
    let all = pairs(ours, other);
    println!("{} ratios are in both reports", all.len());
    let differ = all.iter().filter(|pair| pair.differs());
    let (noisy, bad): (Vec<_>, Vec<_>) = differ.partition(|pair| pair.is_noisy);
    for (pairs, verdict) in [(&noisy, "noisy"), (&bad, "DIFFERS")] {
        for pair in pairs {
            let [here, there] = pair.ratios;
            println!("{verdict}: {}: {here:.3} here, {there:.3} there", pair.what);
        }
    }
    let limit = NOISE * 100.0;
    println!(
        "{} within {limit:.0} % of each other, {} further apart and marked noisy, {} further apart",
        all.len() - noisy.len() - bad.len(),
        noisy.len(),
        bad.len()
    );
    ensure!(!all.is_empty(), "the reports have no ratio in common");
    ensure!(
        bad.is_empty(),
        "{} ratios differ by more than {limit:.0} % and are not marked noisy",
        bad.len()
    );
    Ok(())
}

fn pairs(ours: &KeptFigures, other: &KeptFigures) -> Vec<RatioPair> {
    let mut pairs = Vec::new();
    for one in &ours.records {
        let is_same = |two: &&KeptRecord| {
            two.record.bench == one.record.bench && two.record.row == one.record.row
        };
        let Some(two) = other.records.iter().find(is_same) else {
            continue;
        };
        for against in &one.record.others {
            let name = &against.theirs.name;
            let mut theirs = two.record.others.iter();
            let theirs = theirs.find(|other| other.theirs.name == *name);
            let theirs = theirs.and_then(|other| other.ratio.as_ref());
            if let (Some(ratio), Some(theirs)) = (&against.ratio, theirs) {
                pairs.push(RatioPair {
                    what: format!("{}/{} against {name}", one.record.bench, one.record.row),
                    ratios: [ratio.median, theirs.median],
                    is_noisy: is_marked(ours, one, ratio) || is_marked(other, two, theirs),
                });
            }
        }
    }
    pairs
}

fn is_marked(of: &KeptFigures, record: &KeptRecord, ratio: &Ratio) -> bool {
    let run = of.run_of(record);
    ratio.noisy.is_some() || run.is_some_and(|run| run.disturbed.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{record, run as run_of};
    use super::*;

    fn kept(ours: &[f64], theirs: &[f64], disturbed: Option<&str>) -> KeptFigures {
        let mut kept = KeptFigures::default();
        let records = vec![record("exfat", "read", ours, theirs)];
        kept.merge("a", run_of("d", disturbed), records);
        kept
    }

    #[test]
    fn only_a_difference_that_no_mark_explains_fails() {
        let half = kept(&[1.0, 1.0, 1.0], &[2.0, 2.0, 2.0], None);
        let near = kept(&[1.1, 1.1, 1.1], &[2.0, 2.0, 2.0], None);
        let far = kept(&[1.2, 1.2, 1.2], &[2.0, 2.0, 2.0], None);
        let noisy = kept(&[1.2, 1.2, 1.6], &[2.0, 2.0, 2.0], None);
        let disturbed = kept(&[1.2, 1.2, 1.2], &[2.0, 2.0, 2.0], Some("busy"));
        for (other, is_fine) in [
            (&near, true),
            (&far, false),
            (&noisy, true),
            (&disturbed, true),
        ] {
            assert_eq!(
                run(&half, other).is_ok(),
                is_fine,
                "{:?}",
                pairs(&half, other)
            );
            assert_eq!(run(other, &half).is_ok(), is_fine);
        }
        assert!(run(&half, &KeptFigures::default()).is_err());
        let pair = &pairs(&half, &far)[0];
        assert_eq!(pair.what, "exfat/read against kernel");
        assert_eq!(pair.ratios, [0.5, 0.6]);
    }
}
