//! Reads the central directory (4.3.12) once, in order, and builds the tree.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, OpenWith, Result};

use crate::end::{End, read};
use crate::entry::{self, HEADER};
use crate::error::Check;
use crate::method::Method;
use crate::tree::{Builder, Tree};

/// Most warnings to keep; the others are counted.
const WARNINGS_MAX: usize = 64;
/// Length of one read.
const CHUNK: u64 = 256 << 10;

#[derive(Debug)]
pub struct Directory {
    pub tree: Tree,
    pub facts: Facts,
    /// The damage at which a rescue ended the directory.
    pub damage: Option<Error>,
}

/// Facts about the archive besides the tree.
#[derive(Debug, Default)]
pub struct Facts {
    pub has_owners: bool,
    /// Deviations despite which the tree was built, with the offsets of their entries.
    pub warnings: Vec<(u64, Check)>,
    pub more_warnings: u64,
    /// Number of members that are not part of the tree.
    pub left_out: u64,
    pub members: u64,
    /// Number of encrypted members, and of members with unsupported compression methods.
    pub encrypted: u64,
    pub unsupported: u64,
}

impl Directory {
    /// Reads the directory of an archive. In a rescue, it ends where it is damaged.
    ///
    /// # Errors
    /// `Corrupt` with the offset of an entry, `Limit`, `Io`.
    pub fn read(end: &End, with: &OpenWith) -> Result<Self> {
        let mut pass = Pass {
            window: Window::new(&*with.metadata, end),
            builder: Builder::new(&with.limits, with.ownership.clone()),
            facts: Facts::default(),
        };
        let damage = match pass.run(end, with) {
            Ok(()) => None,
            Err(error @ Error::Corrupt(_)) if with.rescue => Some(error),
            Err(error) => return Err(error),
        };
        Ok(Self {
            tree: pass.builder.finish(),
            facts: pass.facts,
            damage,
        })
    }
}

impl Facts {
    fn warn(&mut self, at: u64, check: Check) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push((at, check))
        } else {
            self.more_warnings += 1
        }
    }
}

struct Pass<'a> {
    window: Window<'a>,
    builder: Builder,
    facts: Facts,
}

impl Pass<'_> {
    fn run(&mut self, end: &End, with: &OpenWith) -> Result<()> {
        // The bytes of the directory determine the number of entries. The end record counts modulo
        // 2^16 if the writer does not know zip64.
        while self.window.left() >= u64_from(HEADER) {
            let at = self.window.at;
            if let Some(check) = self.entry(end, with)? {
                self.facts.left_out += u64::from(check.leaves_out());
                self.facts.warn(at, check);
            }
        }
        let (declared, found) = (end.entries, self.facts.members);
        let is_same = if end.is_zip64 {
            declared == found
        } else {
            declared == found & 0xffff
        };
        if !is_same {
            let check = Check::Entries { declared, found };
            self.facts.warn(end.directory.start, check);
        }
        match self.window.left() {
            0 => Ok(()),
            left => Err(Check::Left { left }.at(self.window.at)),
        }
    }

    /// Reads the next entry and adds its member. Returns why the member was left out or deviates
    /// from the format.
    fn entry(&mut self, end: &End, with: &OpenWith) -> Result<Option<Check>> {
        let (at, left) = (self.window.at, self.window.left());
        let bytes = self.window.peek(HEADER)?;
        let Some(header) = entry::header(bytes) else {
            return Err(Check::Left { left }.at(at));
        };
        let rest = entry::rest_len(&header).map_err(|check| check.at(at))?;
        let len = entry::entry_len(rest);
        if len > left {
            return Err(Check::Entry { len, left }.at(at));
        }
        let bytes = self.window.peek(usize_from(len))?;
        let parsed = entry::parse(&header, &bytes[HEADER..], end.prefix, &with.ownership);
        let check = match parsed {
            Ok(member) => {
                let facts = &mut self.facts;
                facts.has_owners |= member.owner.is_some();
                match member.data.method {
                    Method::Encrypted => facts.encrypted += 1,
                    Method::Other(_) => facts.unsupported += 1,
                    Method::Stored | Method::Deflate | Method::Zstd => {}
                }
                self.builder.add(&member, at)?
            }
            Err(check) => return Err(check.at(at)),
        };
        self.facts.members += 1;
        self.window.consume(len);
        Ok(check)
    }
}

/// The bytes of the directory, read once, in order.
struct Window<'a> {
    source: &'a dyn ReadAt,
    /// Offset of the next byte, and of the end.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Number of buffered bytes that were used.
    used: usize,
}

impl<'a> Window<'a> {
    const fn new(source: &'a dyn ReadAt, end: &End) -> Self {
        Self {
            source,
            at: end.directory.start,
            end: end.directory.end,
            buffer: Vec::new(),
            used: 0,
        }
    }

    const fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Returns the next `len` bytes, which must not reach past the directory.
    fn peek(&mut self, len: usize) -> Result<&[u8]> {
        let kept = self.buffer.len() - self.used;
        if kept < len {
            let start = self.at + u64_from(kept);
            let wanted = u64_from(len - kept).max(CHUNK);
            let chunk = read(self.source, start..(start + wanted).min(self.end))?;
            self.buffer.drain(..self.used);
            self.buffer.extend_from_slice(&chunk);
            self.used = 0;
        }
        Ok(&self.buffer[self.used..self.used + len])
    }

    fn consume(&mut self, len: u64) {
        self.used += usize_from(len);
        self.at += len;
    }
}
