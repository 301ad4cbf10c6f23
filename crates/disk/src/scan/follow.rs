//! Follows the members of archives that a search has found, until it reaches their ends.

use std::ops::Range;

use forerun_io::{ReadAt, u64_from};
use forerun_vfs::Follow;

use super::ScanFinding;
use super::piece::{Candidate, Piece};

/// Maximum number of nested archives that are followed at the same time. Deeper ones are not found.
const DEPTH: usize = 16;

/// An archive whose members are being followed.
struct Following {
    /// Its index in the list of findings.
    index: usize,
    start: u64,
    /// Offset of the first member's header, after extended headers.
    first: u64,
    pass: Box<dyn Follow>,
}

#[derive(Default)]
pub struct Followed(Vec<Following>);

impl Followed {
    /// Returns whether another archive can be followed.
    pub fn has_room(&self) -> bool {
        self.0.len() < DEPTH
    }

    /// Follows the archive that is the finding at `index`.
    pub fn add(&mut self, index: usize, start: u64, first: FirstMember) {
        let FirstMember { offset, pass } = first;
        self.0.push(Following {
            index,
            start,
            first: start + offset,
            pass,
        });
    }

    /// Advances past all members that begin before `position`, and sets the lengths of archives
    /// that end. Returns whether an archive begins just before `position`, and the end of the
    /// passed members.
    pub fn advance(
        &mut self,
        piece: &Piece<'_>,
        position: u64,
        findings: &mut [ScanFinding],
    ) -> (bool, u64) {
        let (mut is_member, mut end) = (false, 0);
        self.0.retain_mut(|following| {
            let archive = Candidate {
                piece,
                start: following.start,
            };
            let mut goes_on = true;
            while goes_on {
                let next = following.start + following.pass.wants().0;
                end = end.max(next);
                is_member |= position > following.start && position - 1 <= following.first;
                if next >= position {
                    return true;
                }
                is_member |= next + 1 == position;
                goes_on = step(&archive, &mut *following.pass) == Some(false);
            }
            following.end(findings);
            false
        });
        (is_member, end)
    }

    /// Returns the known ranges of the archives so far.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.0
            .iter()
            .map(|it| it.start..it.start.saturating_add(it.pass.wants().0))
    }

    /// Ends all archives at their last complete member.
    pub fn finish(&mut self, findings: &mut [ScanFinding]) {
        for following in std::mem::take(&mut self.0) {
            following.end(findings);
        }
    }
}

impl Following {
    fn end(&self, findings: &mut [ScanFinding]) {
        if let Some(finding) = findings.get_mut(self.index) {
            finding.len = Some(self.pass.end());
        }
    }
}

/// A pass that has consumed the first member of an archive.
pub struct FirstMember {
    /// Offset of the first header in the archive.
    offset: u64,
    pass: Box<dyn Follow>,
}

impl FirstMember {
    /// Consumes the first member. Returns `None` if there is none.
    pub fn take(piece: &Piece<'_>, start: u64, mut pass: Box<dyn Follow>) -> Option<Self> {
        let archive = Candidate { piece, start };
        let mut offset = 0;
        // Extended headers precede the member.
        while pass.end() == 0 {
            offset = pass.wants().0;
            if step(&archive, &mut *pass) != Some(false) {
                return None;
            }
        }
        Some(Self { offset, pass })
    }
}

/// Feeds an archive the next bytes. Returns whether it ends with them; `None` if they do not belong
/// to it.
fn step(archive: &Candidate<'_, '_>, pass: &mut dyn Follow) -> Option<bool> {
    let (at, len) = pass.wants();
    if at + u64_from(len) > archive.len() {
        return None;
    }
    let mut bytes = vec![0; len];
    archive.read_exact_at(at, &mut bytes).ok()?;
    pass.take(&bytes, archive.len()).ok()
}
