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
    /// Bytes of the archive.
    pub len: u64,
    pub label: Vec<u8>,
    /// Members, those left out too.
    pub members: u64,
    /// Deviations that the tree was built in spite of, with the offsets of their headers.
    pub warnings: Vec<(u64, Check)>,
    /// Further deviations.
    pub more_warnings: u64,
    /// The damage at which a rescue ended the archive.
    pub damage: Option<Error>,
}

/// Reads an archive. With `rescue`, it ends where it is damaged.
///
/// # Errors
/// `Corrupt` with the offset of a header, `Unsupported`, `Limit`, `Io`.
pub fn read(source: &dyn ReadAt, limits: &Limits, rescue: bool) -> Result<Index> {
    let mut pass = Pass {
        builder: Builder::new(limits),
        parser: Parser::new(limits),
        len: 0,
        label: Vec::new(),
        members: 0,
        warnings: Vec::new(),
        more_warnings: 0,
    };
    let damage = match pass.run(source) {
        Ok(()) => None,
        Err(error @ Error::Corrupt(_)) if rescue => Some(error),
        Err(error) => return Err(error),
    };
    Ok(Index {
        tree: pass.builder.finish(),
        len: pass.len.min(source.len()),
        label: pass.label,
        members: pass.members,
        warnings: pass.warnings,
        more_warnings: pass.more_warnings,
        damage,
    })
}

struct Pass {
    builder: Builder,
    parser: Parser,
    len: u64,
    label: Vec<u8>,
    members: u64,
    warnings: Vec<(u64, Check)>,
    more_warnings: u64,
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
                Found::Label(label) => self.label = label,
                Found::Member(member) => {
                    self.members += 1;
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
                    self.len = end;
                    if trailing {
                        self.warn(end, Check::Trailing);
                    }
                    return Ok(());
                }
            }
            self.len = self.parser.wants().0;
        }
    }

    /// Ends the archive where the source ends.
    fn end_of_source(&mut self, at: u64, end: u64, len: u64) -> Result<()> {
        self.len = at.min(len);
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
        match self.warnings.len() < WARNINGS_MAX {
            true => self.warnings.push((at, check)),
            false => self.more_warnings += 1,
        }
    }
}
