//! Finds the contents of an unknown file: images, other known contents, partition tables, and the
//! ranges between them.
//!
//! [`scan`] reads the file forward once, in chunks of 4 MiB, and looks for the magic numbers of all
//! formats and of [`KNOWN`](crate::known) contents at every byte, because firmware payloads lie at
//! odd offsets. A magic number only makes a candidate: the driver validates the superblock of an
//! image ([`Format::measure`](forerun_vfs::Format::measure)), and a check validates known contents.
//! Partition tables and containers are looked for at the start of the file. A file that is
//! completely the map of a disk (an Android sparse image, UBI) is searched through its map, and
//! findings have offsets in the disk. The blocks of other such maps are not searched.
//!
//! Every field of a candidate may be hostile. Memory is bounded by two chunks and
//! [`MOST_FINDINGS`]. A chunk full of failing candidates costs at most 4096 validations at odd
//! offsets. A check may read far to find an end. If the scan then skips those bytes, they were read
//! once; the total of bytes that are read again is bounded by the length of the source.

mod follow;
mod gaps;
mod nest;
mod piece;
mod signs;
mod sums;

use std::ops::Range;
use std::sync::Arc;

use forerun_io::{BlobId, Counted, Observer, ReadAt, Window, u64_from};
use forerun_vfs::{Error, Format, Limits, MEASURE_LEN, Measured, Result};

use crate::expanded::whole_map;
use crate::known::{Budget, Bytes, Found, Inside, Known, Role, date};
use crate::map::Mapped;
use crate::partitions::{PartitionTable, TableKind, partition_table};
use crate::payload::{self, Payload};
use crate::{Container, Disk, Foreign};
use follow::{FirstMember, Followed};
use gaps::{Gaps, Unread};
use piece::{Candidate, CountedSource, PIECE, Piece};
use signs::{Meaning, Sign, Signs};
use sums::Sums;

/// Maximum number of findings of a scan.
pub const MOST_FINDINGS: usize = 65_536;
/// Number of candidates of a chunk that may fail. After that, only multiples of [`STEP`] are
/// considered in the chunk.
const MOST_FAILED: u32 = 4096;
/// Number of failures that a compressed candidate counts for, because its stream is decoded. After
/// [`MOST_FAILED`] failures, the chunk's compressed candidates are skipped.
const DECODED: u32 = 16;
/// Number of disks that may fail to open before no more are tried. Each attempt reads the headers
/// of all later erase blocks, and every erase block of a damaged flash dump looks like the start of
/// a disk.
const MOST_FAILED_DISKS: u32 = 64;
/// Most images lie at multiples of this.
const STEP: u64 = 512;
/// Largest distance between the start of a structure and its magic number. btrfs has it after 64
/// KiB.
const BEHIND: u64 = 0x1_1000;
/// Bytes that checks may read in addition to the length of the source, and bytes that they may
/// decode to.
const SPARE_READS: u64 = 64 << 20;
const SPARE_DECODES: u64 = 1 << 30;
/// Bytes that checks may decode to, per byte of the source.
const MOST_RATIO: u64 = 64;
/// Assumed length of a finding of unknown length: its header.
const HEADER: u64 = 512;
/// Length of a GUID partition table, and of its backup at the end of the disk, as tools write them.
const GPT_LEN: u64 = 34 * 512;
const GPT_COPY: u64 = 33 * 512;

#[derive(Clone, Copy, Debug, Default)]
pub struct ScanOptions {
    /// Searches inside images for further images.
    pub all: bool,
    /// Offset where the search starts.
    pub offset: u64,
    /// Bytes to search; up to the end if not given.
    pub size: Option<u64>,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanKind {
    /// An image that can be opened, with the name of its format.
    Image(&'static str),
    /// A partition table. It covers the file.
    Table(TableKind),
    /// A partition, with its number.
    Partition(u32),
    /// An executable or container with an image. It covers the file.
    Container(Container),
    /// Contents that forerun does not open, with the name of their kind.
    Known(&'static str),
    /// Equal bytes between findings: 0x00 or 0xff.
    Padding,
    /// Unidentified bytes between findings.
    Unknown,
}

impl ScanKind {
    /// Returns a short stable name, for JSON output.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Image(name) | Self::Known(name) => name,
            Self::Table(kind) => kind.name(),
            Self::Partition(_) => "partition",
            Self::Container(container) => container.name(),
            Self::Padding => "padding",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether the finding is identified contents.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        !matches!(self, Self::Padding | Self::Unknown)
    }
}

/// A result of a scan.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanFinding {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in its own superblock or header; `None` if that does not state it.
    pub len: Option<u64>,
    pub kind: ScanKind,
    /// Label or name; often empty.
    pub label: Vec<u8>,
    /// Further facts as text; often empty.
    pub details: String,
    /// Result of verifying the checksum of the data. `None` without a checksum, or if it was not
    /// computed.
    pub intact: Option<bool>,
    /// The source ends before the finding does.
    pub is_truncated: bool,
    /// Entropy of an unknown range in bits per byte: 8 for compressed and encrypted data, about 4
    /// to 6.5 for programs and text.
    pub entropy: Option<f64>,
    /// Index of the smallest finding that contains this one.
    pub inside: Option<usize>,
}

impl ScanFinding {
    fn new(offset: u64, len: Option<u64>, kind: ScanKind) -> Self {
        Self {
            offset,
            len,
            kind,
            label: Vec::new(),
            details: String::new(),
            intact: None,
            is_truncated: false,
            entropy: None,
            inside: None,
        }
    }

    fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len?)
    }

    /// Truncates the finding to the source, which has `left` bytes from the finding's start on.
    /// Returns whether it is complete.
    fn cut_to(&mut self, left: u64) -> bool {
        let Some(len) = self.len.filter(|&len| len > left) else {
            return true;
        };
        self.len = Some(left);
        self.is_truncated = true;
        if !self.details.is_empty() {
            self.details += ", ";
        }
        self.details += &format!("truncated: {left} of {len} bytes");
        false
    }
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scanned {
    /// The findings by offset, outer ones before inner ones.
    pub findings: Vec<ScanFinding>,
    /// There are more than [`MOST_FINDINGS`], so the scan ended early; or a finding was too costly to
    /// check to its end.
    pub is_cut: bool,
}

/// Returns what a search of `len` bytes may read and decode.
const fn budget(len: u64, all: bool) -> Budget {
    let times = if all { 4 } else { 1 };
    Budget {
        reads: SPARE_READS.saturating_add(len.saturating_mul(times)),
        decodes: SPARE_DECODES.saturating_add(len.saturating_mul(MOST_RATIO)),
    }
}

/// Finds images of these formats, and their containers, in a source. Calls `progress` with the
/// number of searched bytes.
pub fn scan(
    source: &Arc<dyn ReadAt>,
    formats: &'static [Format],
    options: ScanOptions,
    observer: &Arc<Observer>,
    progress: &mut dyn FnMut(u64),
) -> Result<Scanned> {
    let foreign = Foreign::read(&**source)?;
    let disk = if foreign.is_some() {
        None
    } else {
        whole_map(&**source)?
    };
    let container = match (&disk, foreign) {
        (Some(disk), _) => Some(disk.kind.into()),
        (None, Some(foreign)) => Some(Container::VirtualDisk(foreign.name())),
        (None, None) => None,
    };
    let volumes = disk.as_ref().map(|disk| disk.volumes.clone());
    let volumes = volumes.unwrap_or_default();
    let disk = disk.map(|disk| Arc::new(disk.over(Arc::clone(source))));
    let mut source: Arc<dyn ReadAt> = match &disk {
        Some(disk) => Arc::<Mapped<_>>::clone(disk),
        None => Arc::clone(source),
    };
    let is_whole = options.offset == 0 && options.size.is_none();
    if !is_whole {
        let window = Window::new(source, options.offset, options.size);
        source = Arc::new(window.map_err(|error| Error::io(options.offset, 0, error))?);
    }
    let source = &CountedSource(Counted::new(source, BlobId::IMAGE, Arc::clone(observer)));
    let mut search = Search {
        options,
        formats,
        signs: Signs::new(formats),
        findings: Vec::new(),
        sums: Sums::default(),
        gaps: Gaps::default(),
        budget: budget(source.len(), options.all),
        images_end: 0,
        files_end: 0,
        followed: Followed::default(),
        failed_disks: 0,
        is_cut: false,
        is_short: false,
    };
    let has_volumes = !volumes.is_empty() && is_whole;
    if let Some(container) = container.filter(|_| !has_volumes) {
        let kind = ScanKind::Container(container);
        search.push(ScanFinding::new(0, Some(source.len()), kind), 0..0);
    }
    let of_volumes = disk
        .as_ref()
        .and_then(|disk| PartitionTable::of_volumes(&volumes, disk.len()));
    let table = match of_volumes.filter(|_| is_whole) {
        Some(table) => Some(table),
        None => partition_table(source)?,
    };
    // Contents of a virtual machine's disk are not at their offsets in the file, so nothing is
    // searched.
    let is_searched = foreign.is_none();
    if is_searched {
        search.start(source, table)?;
    }
    let mut piece = Piece::new(source);
    let mut start = 0;
    while is_searched && start < source.len() && !search.is_cut {
        piece.load(search.gaps.done.min(start), start)?;
        let end = (start + PIECE).min(source.len());
        search.piece(&piece, start, end);
        // Data with a checksum is read even if it is not searched.
        start = if search.sums.is_empty() {
            search.images_end.max(end)
        } else {
            end
        };
        let is_last = start >= source.len();
        let settled = match start == end && !is_last {
            true => end.saturating_sub(BEHIND),
            false => start.min(source.len()),
        };
        search.close_gaps(&piece, settled);
        if let Some(disk) = &disk {
            // Fill contains no images, and forty bytes may claim 2^63 bytes of it.
            let next = disk.next_stored(options.offset + start);
            let next = next.map_or(source.len(), |next| next - options.offset);
            if next > start && search.sums.is_empty() {
                search.close_gaps(&piece, start);
                let mut fill = [0];
                let read = source.read_exact_at(start, &mut fill);
                read.map_err(|error| Error::io(start, 1, error))?;
                search.gaps.advance(Unread::Fill(fill[0]), next);
                start = next;
            }
        }
        progress(start.min(source.len()));
    }
    search.followed.finish(&mut search.findings);
    search.gaps.finish();
    search.findings.append(&mut search.gaps.found);
    for finding in &mut search.findings {
        finding.offset += options.offset;
    }
    nest::nest(&mut search.findings);
    Ok(Scanned {
        findings: search.findings,
        is_cut: search.is_cut || search.is_short,
    })
}

/// The state of a scan.
struct Search {
    formats: &'static [Format],
    options: ScanOptions,
    signs: Signs,
    findings: Vec<ScanFinding>,
    sums: Sums,
    gaps: Gaps,
    budget: Budget,
    /// End of the last image. The search skips the bytes before it.
    images_end: u64,
    /// End of the last archive or filesystem that forerun does not open. Only images are searched
    /// for before it.
    files_end: u64,
    followed: Followed,
    /// Number of disks that could not be opened, in all chunks.
    failed_disks: u32,
    is_cut: bool,
    /// A check could not read all that it needed.
    is_short: bool,
}

impl Search {
    /// Looks for a partition table and containers at the start of the source.
    fn start(&mut self, source: &dyn ReadAt, table: Option<PartitionTable>) -> Result<()> {
        let len = Some(source.len());
        if let Some(table) = table {
            let mut finding = ScanFinding::new(0, len, ScanKind::Table(table.kind));
            finding.details = match table.kind {
                TableKind::Ubi => counted_volumes(table.partitions.len()),
                _ => counted(table.partitions.len()),
            };
            if table.from_backup {
                finding.details += ", from the copy at the end";
            }
            let covered = match table.kind {
                TableKind::Ubi => 0,
                TableKind::Gpt => {
                    let copy = source.len().saturating_sub(GPT_COPY);
                    self.gaps.cover(copy..source.len());
                    GPT_LEN.min(source.len())
                }
                TableKind::Mbr => STEP.min(source.len()),
            };
            self.push(finding, 0..covered);
            for partition in table.partitions {
                let kind = ScanKind::Partition(partition.number);
                let mut finding = ScanFinding::new(partition.offset, Some(partition.len), kind);
                finding.label = partition.label.into_bytes();
                finding.details = partition.type_name;
                self.push_around(finding, 0);
            }
        }
        // A container that is damaged, or has contents that forerun does not open, does not count.
        let places = payload::find(source).unwrap_or_default();
        let mut places = places.into_iter();
        if let Some(place) = places.find(|place| self.is_image(source, place)) {
            let kind = ScanKind::Container(place.container);
            self.push(ScanFinding::new(0, len, kind), 0..place.offset);
        }
        Ok(())
    }

    /// Searches the chunk from `start` to `end`.
    fn piece(&mut self, piece: &Piece<'_>, start: u64, end: u64) {
        let (mut at, mut failed) = (0, 0);
        let (mut byte, mut block) = (None, None);
        loop {
            // The next match is searched for only after the previous one was passed.
            if byte.is_none_or(|found| found < at) {
                byte = Some(self.signs.next(piece.bytes(), at).unwrap_or(usize::MAX));
            }
            if block.is_none_or(|found| found < at) {
                let found = self.signs.next_block(piece.bytes(), at, start);
                block = Some(found.unwrap_or(usize::MAX));
            }
            let found = byte.min(block).unwrap_or(usize::MAX);
            let position = start.saturating_add(u64_from(found));
            if position >= end || self.is_cut {
                break;
            }
            at = found + 1;
            let signs: Vec<_> = self.signs.at(piece.from(position), position).collect();
            for sign in signs {
                if let Some(offset) = position.checked_sub(sign.offset) {
                    failed += self.failed(piece, offset, sign, failed);
                }
            }
        }
        self.follow(piece, end);
        let findings = &mut self.findings;
        self.sums.feed(piece, end, &mut |index, is_right| {
            if let Some(finding) = findings.get_mut(index) {
                finding.intact = Some(is_right);
            }
        });
    }

    /// Validates a candidate unless it is skipped. Returns the number of failures that it counts
    /// for.
    fn failed(&mut self, piece: &Piece<'_>, offset: u64, sign: Sign, failed: u32) -> u32 {
        let (is_decoded, is_known) = match sign.meaning {
            Meaning::Compressed(_) => (true, false),
            Meaning::Known(known) => (known.role == Role::Stream, true),
            Meaning::Image(_) | Meaning::Archive(..) | Meaning::Disk => (false, false),
        };
        if is_known && !self.options.all && offset < self.files_end {
            return 0;
        }
        let is_likely = failed < MOST_FAILED || (!is_decoded && offset.is_multiple_of(STEP));
        if !is_likely || self.follow(piece, offset + 1) || offset < self.images_end {
            return 0;
        }
        match (self.candidate(piece, offset, sign), is_decoded) {
            (true, _) => 0,
            (false, true) => DECODED,
            (false, false) => 1,
        }
    }

    /// Follows the members of archives before `position`. Returns whether an archive begins just
    /// before it.
    fn follow(&mut self, piece: &Piece<'_>, position: u64) -> bool {
        let (is_member, end) = self.followed.advance(piece, position, &mut self.findings);
        if !self.options.all {
            self.images_end = self.images_end.max(end);
        }
        is_member
    }

    /// Validates a candidate. Returns whether it is valid.
    fn candidate(&mut self, piece: &Piece<'_>, offset: u64, sign: Sign) -> bool {
        let candidate = Candidate {
            piece,
            start: offset,
        };
        match sign.meaning {
            Meaning::Image(format) => match (format.measure)(&candidate) {
                Ok(measured) => {
                    self.image(offset, format, measured, candidate.len());
                }
                Err(_) => return false,
            },
            Meaning::Compressed(format) => match (format.measure)(&candidate) {
                Ok(mut measured) => {
                    let stream = Known::stream_at(piece.from(offset));
                    measured.details = match stream {
                        Some(known) => format!("compressed with {}", known.name),
                        None => "compressed".to_string(),
                    };
                    let found = stream.and_then(|known| self.check(&candidate, known));
                    if let Some(found) = found {
                        measured.len = found.len;
                        measured.label = found.label;
                        let details = [measured.details, found.details];
                        measured.details = details.join(", ").trim_end_matches(", ").to_string();
                    }
                    self.image(offset, format, measured, u64::MAX);
                }
                Err(_) => return false,
            },
            Meaning::Archive(format, archive) => match (format.measure)(&candidate) {
                Ok(measured) => {
                    let pass = self.followed.has_room().then(|| (archive.follow)());
                    let pass = pass.and_then(|pass| FirstMember::take(piece, offset, pass));
                    let Some(pass) = pass else {
                        return false;
                    };
                    if let Some(index) = self.image(offset, format, measured, u64::MAX) {
                        self.followed.add(index, offset, pass);
                        self.follow(piece, offset + 1);
                    }
                }
                Err(_) => return false,
            },
            Meaning::Disk if self.failed_disks == MOST_FAILED_DISKS => return false,
            Meaning::Disk => match Disk::read(&candidate, &Limits::default()) {
                Ok(Some(disk)) => {
                    let container = disk.kind.into();
                    let end = offset + disk.stored_len;
                    let len = Some(disk.stored_len);
                    let mut finding = ScanFinding::new(offset, len, ScanKind::Container(container));
                    finding.details = counted_volumes(disk.volumes.len());
                    // The blocks of the disk are in another order.
                    self.images_end = self.images_end.max(end);
                    self.push(finding, offset..end);
                }
                _ => {
                    self.failed_disks += 1;
                    return false;
                }
            },
            Meaning::Known(_) if self.is_met(offset) => {}
            Meaning::Known(known) => {
                let found = self.check(&candidate, known);
                let Some(found) = found else {
                    return false;
                };
                self.known(offset, known, found, candidate.len());
            }
        }
        true
    }

    /// Runs a check, and charges the bytes that it reads and decodes to the budget. Bytes that the
    /// scan then skips are free.
    fn check(&mut self, candidate: &Candidate<'_, '_>, known: &Known) -> Option<Found> {
        let mut bytes = Bytes::new(candidate, self.budget);
        let mut found = (known.check)(&mut bytes);
        if let Some(found) = found.as_mut().filter(|_| bytes.is_spent) {
            (found.len, found.details) = (None, "not read to its end".to_string());
            self.is_short = true;
        }
        let is_passed = |found: &&Found| found.inside == Inside::Nothing && !self.options.all;
        let passed = found.as_ref().filter(is_passed).and_then(|found| found.len);
        let free = passed.unwrap_or(0).max(u64_from(MEASURE_LEN));
        let again = bytes.read.saturating_sub(free);
        self.budget.reads = self.budget.reads.saturating_sub(again);
        self.budget.decodes = self.budget.decodes.saturating_sub(bytes.decoded);
        found
    }

    /// Returns whether a finding at this offset exists already. With `all`, a composefs image is
    /// also found as EROFS, because its metadata is EROFS.
    fn is_met(&self, offset: u64) -> bool {
        let mut last = self.findings.iter().rev().take(8);
        last.any(|finding| {
            let is_contents = matches!(finding.kind, ScanKind::Image(_) | ScanKind::Known(_));
            finding.offset == offset && is_contents
        })
    }

    /// Adds an image of at most `left` bytes. Returns its index in the findings if it is new.
    fn image(
        &mut self,
        offset: u64,
        format: &'static Format,
        measured: Measured,
        left: u64,
    ) -> Option<usize> {
        if self.is_met(offset) {
            return None;
        }
        let mut finding = ScanFinding::new(offset, measured.len, ScanKind::Image(format.name));
        finding.label = measured.label;
        finding.details = measured.details;
        if let Some(date) = measured.created.and_then(date) {
            if !finding.details.is_empty() {
                finding.details += ", ";
            }
            finding.details += &format!("made {date}");
        }
        let is_whole = finding.cut_to(left);
        let end = finding.end();
        if let Some(end) = end.filter(|_| !self.options.all && is_whole) {
            self.images_end = end;
        }
        self.push(finding, offset..end.unwrap_or(offset + HEADER));
        (!self.is_cut).then(|| self.findings.len() - 1)
    }

    fn known(&mut self, offset: u64, known: &Known, found: Found, left: u64) {
        // A ZIP archive can be opened, but is recognised by its end, not by the magic number of a
        // driver.
        let opens = self.formats.iter().find(|format| format.name == known.name);
        let kind = opens.map_or(ScanKind::Known(known.name), |format| {
            ScanKind::Image(format.name)
        });
        let mut finding = ScanFinding::new(offset, found.len, kind);
        finding.label = found.label;
        finding.details = found.details;
        let is_whole = finding.cut_to(left);
        let inside = match known.role {
            Role::Volume(_) => Inside::Images,
            Role::Plain | Role::Stream => found.inside,
        };
        if let Some((range, crc)) = found.sum.filter(|_| is_whole) {
            let range = range.start + offset..range.end + offset;
            self.sums.add(self.findings.len(), range, crc);
        }
        let end = finding.end();
        let header = (offset + HEADER).min(offset + left);
        let covered = match inside {
            Inside::All(head) => offset + head.min(left),
            Inside::Nothing | Inside::Images => end.unwrap_or(header),
        };
        if let Some(end) = end.filter(|_| !self.options.all && is_whole) {
            match inside {
                Inside::Nothing => self.images_end = self.images_end.max(end),
                Inside::Images => self.files_end = self.files_end.max(end),
                Inside::All(_) => {}
            }
        }
        match (inside, end) {
            (Inside::All(head), Some(_)) => self.push_around(finding, head.min(left)),
            _ => self.push(finding, offset..covered),
        }
    }

    /// Processes the unexplained bytes before `end`.
    fn close_gaps(&mut self, piece: &Piece<'_>, end: u64) {
        for range in self.followed.ranges() {
            self.gaps.cover(range);
        }
        self.gaps.advance(Unread::Piece(piece), end);
    }

    /// Returns whether a valid image is at a location in a container.
    fn is_image(&self, source: &dyn ReadAt, place: &Payload) -> bool {
        let piece = Piece::new(source);
        let candidate = Candidate {
            piece: &piece,
            start: place.offset,
        };
        let mut formats = self.formats.iter();
        formats.any(|format| (format.measure)(&candidate).is_ok())
    }

    /// Adds a finding with a header and other contents. No gap crosses its borders.
    fn push_around(&mut self, finding: ScanFinding, header: u64) {
        let (start, end) = (finding.offset, finding.end());
        self.push(finding, start..start + header);
        if let Some(end) = end {
            self.gaps.cover(end..end);
        }
    }

    /// Adds a finding, which explains the bytes of a range.
    fn push(&mut self, finding: ScanFinding, explained: Range<u64>) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
            self.gaps.cover(explained);
        } else {
            self.is_cut = true;
        }
    }
}

fn counted_volumes(volumes: usize) -> String {
    match volumes {
        0 => String::new(),
        1 => "1 volume".to_string(),
        n => format!("{n} volumes"),
    }
}

fn counted(partitions: usize) -> String {
    match partitions {
        1 => "1 partition".to_string(),
        n => format!("{n} partitions"),
    }
}
