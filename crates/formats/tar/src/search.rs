//! Finds archives in a file of unknown contents.
//!
//! Every member looks like the start of an archive, so the search follows the members of an archive
//! that it has found, without building a tree. V7 archives have no magic number and are not found.

use forerun_io::{ReadAt, u64_from};
use forerun_spans::Compression;
use forerun_vfs::{ArchiveSearch, Follow, Limits, Magic, Measured, Result, read_head};

use crate::error::Check;
use crate::header::{BLOCK, Header, is_header};
use crate::parser::{Found, Parser};

pub const SEARCH: ArchiveSearch = ArchiveSearch {
    member: Magic {
        offset: 257,
        bytes: b"ustar",
    },
    // The block length. Archives start at block borders of a filesystem, or directly after one
    // another.
    step: 512,
    follow: || Box::new(Follower::new()),
    compressed: &[
        at_start(&[0x1f, 0x8b, 8]),
        at_start(&[0x28, 0xb5, 0x2f, 0xfd]),
        at_start(&[0xfd, b'7', b'z', b'X', b'Z', 0]),
        at_start(b"BZh"),
        at_start(&[0x04, 0x22, 0x4d, 0x18]),
        at_start(&[0x02, 0x21, 0x4c, 0x18]),
    ],
};

const fn at_start(bytes: &'static [u8]) -> Magic {
    Magic { offset: 0, bytes }
}

/// Validates the first header, after decoding it in a compressed archive.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let mut head = read_head(source, BLOCK)?;
    if let Some(compression) = Compression::of(&head) {
        head = forerun_spans::head(source, compression, BLOCK)?;
    }
    let header = Header::parse(&head).map_err(|check| check.at(0))?;
    let (len, end) = (source.len(), u64_from(BLOCK));
    if head.len() < BLOCK || !is_header(&head) || header.path().is_empty() {
        return Err(Check::Cut { end, len }.at(0));
    }
    Ok(Measured::default())
}

struct Follower {
    parser: Parser,
    end: u64,
}

impl Follower {
    fn new() -> Self {
        Self {
            parser: Parser::new(&Limits::default()),
            end: 0,
        }
    }
}

impl Follow for Follower {
    fn wants(&self) -> (u64, usize) {
        self.parser.wants()
    }

    fn take(&mut self, bytes: &[u8], len: u64) -> Result<bool> {
        let at = self.parser.wants().0;
        let is_zero = bytes.iter().all(|&byte| byte == 0);
        match self.parser.feed(bytes)? {
            Found::End { .. } => return Ok(true),
            Found::Member(member) if member.end > len => {
                let end = member.end;
                return Err(Check::Cut { end, len }.at(at));
            }
            Found::Member(_) | Found::Nothing | Found::Label(_) => {}
        }
        let (is_between, has_ended) = self.parser.may_end();
        if is_between && !is_zero || has_ended {
            self.end = self.parser.wants().0.min(len);
        }
        Ok(has_ended)
    }

    fn end(&self) -> u64 {
        self.end
    }
}
