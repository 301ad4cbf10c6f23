//! Reads the headers of an archive once, in order, and builds the tree.

use forerun_io::{Limits, ReadAt, u64_from};
use forerun_vfs::{Error, Result};

use crate::error::{Check, lossy};
use crate::parser::{Found, Parser};
use crate::tree::{Builder, Tree};

/// Most warnings that are kept; the others are counted.
const WARNINGS_MAX: usize = 64;

/// The result of one pass over an archive.
#[derive(Debug)]
pub struct Index {
    pub tree: Tree,
    pub facts: Facts,
    /// The damage at which a rescue ended the archive.
    pub damage: Option<Error>,
}

/// The facts of an archive beside its tree.
#[derive(Debug, Default)]
pub struct Facts {
    /// Bytes of the archive.
    pub len: u64,
    pub label: Vec<u8>,
    /// Members, those left out too.
    pub members: u64,
    /// Deviations that the tree was built in spite of, with the offsets of their headers.
    pub warnings: Vec<(u64, Check)>,
    /// Further deviations.
    pub more_warnings: u64,
}

/// Reads an archive. With `rescue`, it ends where it is damaged.
///
/// # Errors
/// `Corrupt` with the offset of a header, `Unsupported`, `Limit`, `Io`.
pub fn read(source: &dyn ReadAt, limits: &Limits, rescue: bool) -> Result<Index> {
    let mut pass = Pass {
        builder: Builder::new(limits),
        parser: Parser::new(limits),
        facts: Facts::default(),
    };
    let damage = match pass.run(source) {
        Ok(()) => None,
        Err(error @ Error::Corrupt(_)) if rescue => Some(error),
        Err(error) => return Err(error),
    };
    pass.facts.len = pass.facts.len.min(source.len());
    Ok(Index {
        tree: pass.builder.finish(),
        facts: pass.facts,
        damage,
    })
}

struct Pass {
    builder: Builder,
    parser: Parser,
    facts: Facts,
}

impl Pass {
    fn run(&mut self, source: &dyn ReadAt) -> Result<()> {
        let source_len = source.len();
        let mut bytes = Vec::new();
        loop {
            let (at, len) = self.parser.wants();
            let end = at.saturating_add(u64_from(len));
            if end > source_len {
                return self.end_of_source(at, end, source_len);
            }
            bytes.resize(len, 0);
            let read = source.read_exact_at(at, &mut bytes);
            read.map_err(|error| Error::io(at, len, error))?;
            match self.parser.feed(&bytes)? {
                Found::Nothing => {}
                Found::Label(label) => self.facts.label = label,
                Found::Member(member) => {
                    self.facts.members += 1;
                    let (header, end) = (member.header, member.end);
                    if let Some(kind) = member.unknown {
                        let (path, kind) = (lossy(&member.path), char::from(kind));
                        self.warn(header, Check::Kind { path, kind });
                    }
                    if end > source_len {
                        let len = source_len;
                        return Err(Check::Cut { end, len }.at(header));
                    }
                    if let Some(check) = self.builder.add(*member)? {
                        self.warn(header, check);
                    }
                }
                Found::End { end, trailing } => {
                    self.facts.len = end;
                    if trailing {
                        self.warn(end, Check::Trailing);
                    }
                    return Ok(());
                }
            }
            self.facts.len = self.parser.wants().0;
        }
    }

    /// Ends the archive where the source ends.
    fn end_of_source(&mut self, at: u64, end: u64, len: u64) -> Result<()> {
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

    fn warn(&mut self, at: u64, check: Check) {
        let facts = &mut self.facts;
        match facts.warnings.len() < WARNINGS_MAX {
            true => facts.warnings.push((at, check)),
            false => facts.more_warnings += 1,
        }
    }
}
