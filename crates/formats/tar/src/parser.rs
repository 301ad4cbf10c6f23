//! The parser of an archive as a state machine: it requests bytes, and the caller feeds them.
//!
//! The caller decides how to reach these bytes: it skips the data between headers in a file, or
//! reads past it in a stream. So the state machine needs no source.

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Device, Error, Extent, FileType, Limits, Result, Timestamp};

use crate::error::Check;
use crate::header::{BLOCK, Family, Header, is_header, sparse_extension, until_nul};
use crate::pax::{Records, Sparse, decimal};

/// Maximum number of bytes of extended headers and long names before one file.
const EXTENDED_MAX: u64 = 1 << 20;
/// Length of zeros after the end of an archive that are searched for a further archive.
const ZEROS_MAX: u64 = 1 << 20;

/// The kind of a member of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A node of its own.
    Node(FileType),
    /// A further name of an earlier file.
    HardLink,
}

/// A stored range of a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file.
    pub logical: u64,
    pub len: u64,
    /// Offset in the archive.
    pub stored: u64,
}

/// A member of the archive.
#[derive(Clone, Debug)]
pub struct Member {
    /// Offset of the header.
    pub header: u64,
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub device: Device,
    pub size: u64,
    /// Offset of the data.
    pub data: u64,
    /// The stored ranges of a sparse file, in order.
    pub pieces: Option<Vec<Piece>>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The reason why the tree lacks the member.
    pub left_out: Option<Check>,
    /// Tolerated deviations of the member.
    pub odd: Vec<Check>,
    /// End of the data.
    pub end: u64,
}

/// The result of one step of the parser.
#[derive(Debug)]
pub enum Found {
    Nothing,
    Member(Box<Member>),
    Label(Vec<u8>),
    /// The archive ended at `end`; later bytes are not part of it. `trailing` says whether they are
    /// other than zeros.
    End {
        end: u64,
        trailing: bool,
    },
}

#[derive(Debug)]
enum State {
    Header,
    /// A long name (`L`), a long link (`K`) or pax records (`x`, `g`).
    Extended {
        kind: u8,
        len: usize,
    },
    /// Extension blocks of an old GNU sparse map.
    OldSparse(Box<Draft>),
    /// Blocks of a sparse map before the data.
    Map(Box<Draft>, MapText),
}

/// A member with an incomplete sparse map.
#[derive(Debug)]
struct Draft {
    member: Member,
    /// Length of the data in the archive, including a map before it.
    stored: u64,
    map: Vec<u64>,
}

/// The text of a sparse map: numbers, each followed by a newline.
#[derive(Debug, Default)]
struct MapText {
    /// Numbers that are still missing; `None` until their count is known.
    left: Option<u64>,
    digits: Vec<u8>,
}

#[derive(Debug)]
pub struct Parser {
    /// Offset of the next requested bytes.
    at: u64,
    state: State,
    globals: Records,
    records: Records,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    /// Bytes of extended headers since the last member.
    extended: u64,
    /// Blocks of zeros since the last header.
    zeros: u64,
    /// At least one header was found.
    has_headers: bool,
    /// Maximum number of numbers of a sparse map.
    map_max: usize,
}

impl Parser {
    pub fn new(limits: &Limits) -> Self {
        Self {
            at: 0,
            state: State::Header,
            globals: Records::default(),
            records: Records::default(),
            long_path: None,
            long_link: None,
            extended: 0,
            zeros: 0,
            has_headers: false,
            map_max: usize_from(limits.walk_bytes / 64),
        }
    }

    /// Returns the offset and the number of the bytes to feed next. Bytes before them can be
    /// skipped.
    pub fn wants(&self) -> (u64, usize) {
        match self.state {
            State::Extended { len, .. } => (self.at, len),
            State::Header | State::OldSparse(_) | State::Map(..) => (self.at, BLOCK),
        }
    }

    /// Returns whether the archive may end here, and whether blocks of zeros have ended it.
    pub fn may_end(&self) -> (bool, bool) {
        let between = matches!(self.state, State::Header) && self.extended == 0;
        (between, self.zeros >= 2)
    }

    pub const fn has_headers(&self) -> bool {
        self.has_headers
    }

    /// Consumes the bytes that [`wants`](Self::wants) requested. Members of multi-volume archives
    /// are `Unsupported`.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Found> {
        let at = self.at;
        match std::mem::replace(&mut self.state, State::Header) {
            State::Header => self.header(bytes),
            State::Extended { kind, len } => {
                let padded = u64_from(len).next_multiple_of(u64_from(BLOCK));
                self.at = at + padded;
                self.extended(kind, bytes).map_err(|check| check.at(at))?;
                Ok(Found::Nothing)
            }
            State::OldSparse(draft) => self.old_sparse(draft, bytes),
            State::Map(draft, text) => self.map(draft, text, bytes),
        }
    }

    fn header(&mut self, block: &[u8]) -> Result<Found> {
        let at = self.at;
        let next = at + u64_from(BLOCK);
        if block.iter().all(|&byte| byte == 0) {
            // These extended headers belong to no file.
            self.forget();
            self.zeros += 1;
            self.at = next;
            let zeros = self.zeros * u64_from(BLOCK);
            return Ok(if zeros >= ZEROS_MAX {
                self.end(false)
            } else {
                Found::Nothing
            });
        }
        if self.zeros > 0 && !(is_header(block) && Header::parse(block).is_ok()) {
            return Ok(self.end(true));
        }
        let header = Header::parse(block).map_err(|check| check.at(at))?;
        if self.zeros >= 2 {
            // Another archive follows. Global records applied only to the previous one.
            self.globals = Records::default();
        }
        self.zeros = 0;
        self.has_headers = true;
        self.at = next;
        let fail = |check: Check| check.at(at);
        match header.kind() {
            kind @ (b'L' | b'K' | b'x' | b'X' | b'g') => {
                let size = header.size().map_err(fail)?;
                let limit = EXTENDED_MAX;
                if size > limit || self.extended + size + 1 > limit {
                    return Err(fail(Check::ExtendedLen { size, limit }));
                }
                self.extended += size + 1;
                let len = usize_from(size);
                if len > 0 {
                    self.state = State::Extended { kind, len };
                }
                Ok(Found::Nothing)
            }
            b'V' => {
                let size = header.size().map_err(fail)?;
                self.at = after(next, size).map_err(fail)?;
                self.forget();
                Ok(Found::Label(header.path()))
            }
            b'M' => Err(Error::Unsupported(format!(
                "archives of several volumes (the file at {at:#x} began in another one)"
            ))),
            _ => self.member(&header).map_err(fail),
        }
    }

    const fn end(&self, trailing: bool) -> Found {
        // Two blocks of zeros and the padding of the last record belong to the archive.
        Found::End {
            end: self.at,
            trailing,
        }
    }

    fn forget(&mut self) -> Records {
        self.extended = 0;
        self.long_path = None;
        self.long_link = None;
        std::mem::take(&mut self.records)
    }

    fn extended(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Check> {
        match kind {
            b'L' => self.long_path = Some(until_nul(bytes).to_vec()),
            b'K' => self.long_link = Some(until_nul(bytes).to_vec()),
            b'g' => {
                self.globals.add(bytes)?;
                // A global header stands between members.
                self.extended = 0;
                let odd = self.globals.odd.drain(..).chain(self.globals.fatal.take());
                odd.for_each(|check| self.records.note(check));
            }
            _ => {
                // A second extended header replaces the first.
                self.records = Records {
                    odd: std::mem::take(&mut self.records.odd),
                    ..Records::default()
                };
                self.records.add(bytes)?;
            }
        }
        Ok(())
    }

    fn member(&mut self, header: &Header<'_>) -> Result<Found, Check> {
        let (path, link) = (self.long_path.take(), self.long_link.take());
        let mut records = self.forget().over(&self.globals);
        let path = records
            .path
            .take()
            .or(path)
            .unwrap_or_else(|| header.path());
        let (kind, mut left_out) = kind_of(header, &path);
        let stored = match (&kind, header.kind()) {
            // Programs disagree about the size field of members without data, but none of them
            // writes data.
            (Kind::HardLink, _) => 0,
            (Kind::Node(FileType::Regular), _) | (_, b'D') => {
                stored_len(header, records.size, records.sparse.size)?
            }
            _ => 0,
        };
        let is_device = matches!(
            kind,
            Kind::Node(FileType::BlockDevice | FileType::CharDevice)
        );
        let is_file = kind == Kind::Node(FileType::Regular);
        let is_known = !is_file || matches!(header.kind(), 0 | b'0' | b'7' | b'S');
        if !is_known && left_out.is_none() {
            let kind = char::from(header.kind());
            records.note(Check::Kind { kind });
        }
        let mtime = records.mtime.unwrap_or_else(|| Timestamp {
            seconds: or_noted(header.mtime(), |check| records.note(check)),
            nanoseconds: 0,
        });
        let odd = records.take_odd(&path);
        left_out = left_out.or(records.fatal);
        let mut refuse = |check| {
            left_out.get_or_insert(check);
        };
        let (major, minor) = if is_device {
            or_noted(header.device(), &mut refuse)
        } else {
            (0, 0)
        };
        let id = |record: Option<u32>, field| record.map_or(field, Ok);
        let link = records.link.or(link);
        let member = Member {
            header: self.at - u64_from(BLOCK),
            link: link.unwrap_or_else(|| header.link().to_vec()),
            kind,
            mode: or_noted(header.mode(), &mut refuse),
            uid: or_noted(id(records.uid, header.uid()), &mut refuse),
            gid: or_noted(id(records.gid, header.gid()), &mut refuse),
            mtime,
            device: Device { major, minor },
            size: if is_file { stored } else { 0 },
            data: self.at,
            pieces: None,
            xattrs: records.xattrs,
            left_out,
            odd,
            end: self.at,
            path,
        };
        let draft = Box::new(Draft {
            member,
            stored,
            map: Vec::new(),
        });
        if is_file {
            self.file(draft, header, records.sparse)
        } else {
            self.complete(draft, false)
        }
    }

    /// Determines how the data of a file is stored.
    fn file(
        &mut self,
        mut draft: Box<Draft>,
        header: &Header<'_>,
        sparse: Sparse,
    ) -> Result<Found, Check> {
        if let Some(name) = sparse.name {
            draft.member.path = name;
        }
        if header.kind() == b'S' && header.family == Family::Gnu {
            draft.member.size = header.real_size()?;
            let (entries, more) = header.sparse()?;
            draft.map = entries.into_iter().flat_map(<[u64; 2]>::from).collect();
            return if more {
                self.state = State::OldSparse(draft);
                Ok(Found::Nothing)
            } else {
                self.complete(draft, true)
            };
        }
        match (sparse.major, sparse.size) {
            (Some(1), Some(size)) if sparse.minor == Some(0) => {
                draft.member.size = size;
                self.want_map(draft, MapText::default())
            }
            (None | Some(0), Some(size)) if sparse.has_map => {
                draft.member.size = size;
                draft.map = sparse.map;
                self.complete(draft, true)
            }
            (None | Some(0), None) if !sparse.has_map => self.complete(draft, false),
            (major, _) => {
                draft.member.left_out.get_or_insert_with(|| Check::Value {
                    key: "GNU.sparse.major".to_string(),
                    value: format!("{major:?}.{:?}", sparse.minor),
                });
                self.complete(draft, false)
            }
        }
    }

    fn old_sparse(&mut self, mut draft: Box<Draft>, block: &[u8]) -> Result<Found> {
        let at = draft.member.header;
        self.at += u64_from(BLOCK);
        draft.member.data = self.at;
        let (entries, more) = sparse_extension(block).map_err(|check| check.at(at))?;
        draft
            .map
            .extend(entries.into_iter().flat_map(<[u64; 2]>::from));
        self.bound(&draft)?;
        if more {
            self.state = State::OldSparse(draft);
            return Ok(Found::Nothing);
        }
        self.complete(draft, true).map_err(|check| check.at(at))
    }

    /// Requests the next block of a map. If the data of the member has no further block, the next
    /// block is a header, so the member is left out.
    fn want_map(&mut self, draft: Box<Draft>, text: MapText) -> Result<Found, Check> {
        if draft.stored < u64_from(BLOCK) {
            return self.without_map(draft);
        }
        self.state = State::Map(draft, text);
        Ok(Found::Nothing)
    }

    /// Leaves out a member whose map is not valid.
    fn without_map(&mut self, mut draft: Box<Draft>) -> Result<Found, Check> {
        let piece = draft.map.len() / 2;
        draft.member.left_out = Some(Check::SparseMap { piece });
        self.complete(draft, false)
    }

    fn map(&mut self, mut draft: Box<Draft>, mut text: MapText, block: &[u8]) -> Result<Found> {
        let at = draft.member.header;
        self.at += u64_from(BLOCK);
        let is_valid = text.take(block, &mut draft.map).is_some();
        draft.member.data = self.at;
        draft.stored -= u64_from(BLOCK);
        let found = if is_valid {
            self.bound(&draft)?;
            match text.left {
                Some(0) => self.complete(draft, true),
                _ => self.want_map(draft, text),
            }
        } else {
            self.without_map(draft)
        };
        found.map_err(|check| check.at(at))
    }

    fn bound(&self, draft: &Draft) -> Result<()> {
        if draft.map.len() <= self.map_max {
            return Ok(());
        }
        let limit = u64_from(self.map_max);
        let what = "numbers in the map of a sparse file";
        Err(Error::limit(forerun_vfs::Bound::WalkMemory, what, limit))
    }

    /// Completes a member. Its data begins at `self.at`, and the next header follows the data.
    fn complete(&mut self, mut draft: Box<Draft>, sparse: bool) -> Result<Found, Check> {
        let size = draft.member.size;
        if size > Extent::LAST {
            return Err(Check::Long { size });
        }
        self.at = after(draft.member.data, draft.stored)?;
        draft.member.end = draft.member.data + draft.stored;
        if sparse {
            match pieces(&draft) {
                Ok(pieces) => draft.member.pieces = Some(pieces),
                Err(check) => draft.member.left_out = Some(check),
            }
        }
        Ok(Found::Member(Box::new(draft.member)))
    }
}

impl MapText {
    /// Parses a block of the text. Returns `None` if it is not a map.
    fn take(&mut self, block: &[u8], map: &mut Vec<u64>) -> Option<()> {
        for &byte in block {
            if self.left == Some(0) {
                break;
            }
            match (byte, self.digits.len()) {
                (b'0'..=b'9', 0..20) => self.digits.push(byte),
                (b'\n', _) => {
                    let number = decimal(&self.digits)?;
                    self.digits.clear();
                    match &mut self.left {
                        left @ None => *left = Some(number.checked_mul(2)?),
                        Some(left) => {
                            *left -= 1;
                            map.push(number);
                        }
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }
}

/// Returns the length of a file's data in the archive.
fn stored_len(header: &Header<'_>, record: Option<u64>, sparse: Option<u64>) -> Result<u64, Check> {
    let Some(size) = record else {
        return header.size();
    };
    // For a long sparse file, bsdtar's size record has the length including holes, and the header
    // has the length of the data.
    Ok(match header.size() {
        Ok(stored) if sparse == record && stored > 0 => stored,
        _ => size,
    })
}

/// Returns a value, or records the failed check and returns the default.
fn or_noted<T: Default>(value: Result<T, Check>, note: impl FnOnce(Check)) -> T {
    value.unwrap_or_else(|check| {
        note(check);
        T::default()
    })
}

/// Returns the offset of the block after data of `len` bytes at `at`.
fn after(at: u64, len: u64) -> Result<u64, Check> {
    let padded = len.checked_next_multiple_of(u64_from(BLOCK));
    let end = padded.and_then(|padded| at.checked_add(padded));
    let end = end.filter(|&end| end <= Extent::LAST);
    end.ok_or(Check::Long { size: len })
}

/// Checks a sparse map: its ranges must be in order, inside the file, and as long as the data.
fn pieces(draft: &Draft) -> Result<Vec<Piece>, Check> {
    let mut pieces = Vec::new();
    let (mut end, mut stored) = (0u64, 0u64);
    for (piece, numbers) in draft.map.chunks(2).enumerate() {
        let fail = || Check::SparseMap { piece };
        let &[logical, len] = numbers else {
            return Err(fail());
        };
        let last = logical.checked_add(len).ok_or_else(fail)?;
        if last > draft.member.size || logical < end {
            return Err(fail());
        }
        if len > 0 {
            let stored = draft.member.data.checked_add(stored).ok_or_else(fail)?;
            pieces.push(Piece {
                logical,
                len,
                stored,
            });
        }
        end = last;
        stored += len;
    }
    // The bytes after the last range only pad it to a block.
    if stored > draft.stored || draft.stored - stored >= u64_from(BLOCK) {
        let (named, stored) = (stored, draft.stored);
        return Err(Check::SparseLen { stored, named });
    }
    Ok(pieces)
}

/// Returns the kind of a member, and the reason if such members are skipped.
fn kind_of(header: &Header<'_>, path: &[u8]) -> (Kind, Option<Check>) {
    let refused = |what| {
        let kind = char::from(header.kind());
        Some(Check::NotSupported { kind, what })
    };
    let (kind, refused) = match header.kind() {
        // V7 has no type for directories.
        0 | b'0' if path.ends_with(b"/") => (FileType::Directory, None),
        b'1' => return (Kind::HardLink, None),
        b'2' => (FileType::Symlink, None),
        b'3' => (FileType::CharDevice, None),
        b'4' => (FileType::BlockDevice, None),
        b'5' | b'D' => (FileType::Directory, None),
        b'6' => (FileType::Fifo, None),
        b'N' => (FileType::Regular, refused("old long names")),
        b'S' if header.family != Family::Gnu => {
            (FileType::Regular, refused("sparse files of star"))
        }
        // POSIX: an unknown type is a regular file.
        _ => (FileType::Regular, None),
    };
    (Kind::Node(kind), refused)
}
