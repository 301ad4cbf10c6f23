//! Determines which finding contains which.

use super::ScanFinding;

/// Maximum number of nested findings.
const DEPTH: usize = 32;

/// Sorts the findings by offset, outer ones before inner ones, and sets [`ScanFinding::inside`] to
/// the index of the smallest one that contains each.
pub fn nest(findings: &mut [ScanFinding]) {
    // Stable: findings with the same range keep their order.
    findings.sort_by_key(|finding| (finding.offset, u64::MAX - finding.end().unwrap_or(0)));
    let mut around: Vec<(usize, u64)> = Vec::new();
    for index in 0..findings.len() {
        let Some(finding) = findings.get_mut(index) else {
            break;
        };
        let (start, end) = (finding.offset, finding.end());
        around.retain(|&(_, outer)| outer > start);
        let needed = end.unwrap_or(start);
        let mut outer = around.iter().rev();
        finding.inside = outer.find(|(_, outer)| *outer >= needed).map(|&(at, _)| at);
        if let Some(end) = end
            && around.len() < DEPTH
        {
            around.push((index, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ScanKind;
    use super::*;

    #[test]
    fn the_smallest_finding_around_is_named() {
        let range = |offset, len| ScanFinding::new(offset, len, ScanKind::Unknown);
        let mut findings = vec![
            range(10, Some(10)),
            range(0, Some(100)),
            range(12, Some(4)),
            range(13, None),
            // Overlaps the previous finding, and only the outermost contains it.
            range(15, Some(20)),
            range(200, Some(1)),
        ];
        nest(&mut findings);
        let inside: Vec<_> = findings.iter().map(|finding| finding.inside).collect();
        assert_eq!(inside, [None, Some(0), Some(1), Some(2), Some(0), None]);
    }
}
