//! Builds the tree from the headers of an archive in order.

use forerun_io::{Limits, u64_from};
use forerun_vfs::{Error, Result};

use crate::error::{Check, lossy};
use crate::parser::{Found, Parser};
use crate::tree::{Builder, Tree};

/// Maximum number of warnings that are kept. Further ones are counted.
const WARNINGS_MAX: usize = 64;

/// The result of one pass over an archive.
#[derive(Debug)]
pub struct Index {
    pub tree: Tree,
    pub facts: Facts,
    /// The damage at which rescue mode ended the archive.
    pub damage: Option<Error>,
}

/// The facts about an archive in addition to its tree.
#[derive(Debug, Default)]
pub struct Facts {
    /// Length of the archive.
    pub len: u64,
    pub label: Vec<u8>,
    /// Number of members, including skipped ones.
    pub members: u64,
    /// Number of members that the tree lacks.
    pub left_out: u64,
    /// Tolerated deviations, with the offsets of their headers.
    pub warnings: Vec<(u64, Check)>,
    pub more_warnings: u64,
}

impl Facts {
    /// Records a member that the tree lacks.
    pub fn leave_out(&mut self, at: u64, check: Check) {
        self.left_out += 1;
        self.warn(at, check);
    }

    pub fn warn(&mut self, at: u64, check: Check) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push((at, check))
        } else {
            self.more_warnings += 1
        }
    }
}

/// One pass over the members of an archive.
pub struct Pass {
    builder: Builder,
    parser: Parser,
    facts: Facts,
}

/// The state of a pass after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The pass needs more bytes. The member that begins at `header` ends at `end`.
    Open { header: u64, end: u64 },
    /// The archive has ended.
    Ended,
}

impl Pass {
    /// Starts a pass. The hard links of a layer may name files of lower layers.
    pub fn new(limits: &Limits, is_layer: bool) -> Self {
        Self {
            builder: Builder::new(limits, is_layer),
            parser: Parser::new(limits),
            facts: Facts::default(),
        }
    }

    /// Returns the offset and the number of the bytes to take next.
    pub fn wants(&self) -> (u64, usize) {
        self.parser.wants()
    }

    pub const fn has_headers(&self) -> bool {
        self.parser.has_headers()
    }

    pub fn finish(self, damage: Option<Error>) -> Index {
        Index {
            tree: self.builder.finish(),
            facts: self.facts,
            damage,
        }
    }

    /// Takes the bytes that [`wants`](Self::wants) requested. A member that ends after `source_len`
    /// is truncated.
    pub fn take(&mut self, bytes: &[u8], source_len: u64) -> Result<Progress> {
        let (at, _) = self.wants();
        let mut progress = Progress::Open {
            header: at,
            end: at,
        };
        match self.parser.feed(bytes)? {
            Found::Nothing => {}
            Found::Label(label) => self.facts.label = label,
            Found::Member(mut member) => {
                self.facts.members += 1;
                let (header, end) = (member.header, member.end);
                progress = Progress::Open { header, end };
                if end > source_len {
                    let len = source_len;
                    return Err(Check::Cut { end, len }.at(header));
                }
                for check in std::mem::take(&mut member.odd) {
                    self.warn(header, check);
                }
                let refused = match member.left_out.take() {
                    Some(check) => Some(Check::LeftOut {
                        path: lossy(&member.path),
                        check: Box::new(check),
                    }),
                    None => self.builder.add(*member)?,
                };
                if let Some(check) = refused {
                    self.facts.leave_out(header, check);
                }
            }
            Found::End { end, trailing } => {
                self.facts.len = end;
                if trailing {
                    self.warn(end, Check::Trailing);
                }
                return Ok(Progress::Ended);
            }
        }
        self.facts.len = self.wants().0;
        Ok(progress)
    }

    /// Ends the archive at the end of the source, after `len` bytes. Fails with `Corrupt` if the
    /// archive cannot end there.
    pub fn end_of_source(&mut self, len: u64) -> Result<()> {
        let (at, wanted) = self.wants();
        let end = at + u64_from(wanted);
        self.facts.len = at.min(len);
        let (between, ended) = self.parser.may_end();
        if !between || (at < len && !ended) {
            return Err(Check::Cut { end, len }.at(at));
        }
        if !ended {
            self.warn(at.min(len), Check::NoEnd);
        } else if at < len {
            self.warn(at, Check::Trailing);
        }
        Ok(())
    }

    pub fn warn(&mut self, at: u64, check: Check) {
        self.facts.warn(at, check);
    }
}
