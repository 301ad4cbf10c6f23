//! Directory listings: runs of entries whose inodes share a metadata block.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_vfs::{
    DirCursor, DirEntry, Error, FileType, NameError, NodeId, PassedOver, Result, check_name,
};

use crate::cursor::Cursor;
use crate::error::Check;
use crate::image::Image;
use crate::inode::{self, Dir};
use crate::landmarks::{self, EntryPlace, Landmarks, Remembered};
use crate::ondisk::{self, DIR_RUN};
use crate::positions::Mark;
use crate::reference::Reference;

/// Longest name: the format's limit, below what the 16-bit length field could hold.
pub const NAME_MAX: usize = 256;
/// Bytes of a listing between two remembered positions.
const MARK_EVERY: u64 = 8192;
/// Longest listing that a lookup always searches from its start.
const SHORT: u32 = 1024;

/// Visits the entries after `from`. Skips bad entries, and returns the first one's error at the
/// end. A cursor holds the offset of the run's header in the listing, and one plus the number of
/// entries before this one in the run.
pub fn read(
    image: &Image,
    node: NodeId,
    from: DirCursor,
    visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    each(image, node, from, &mut |entry, _| visit(entry))
}

/// Like [`read`], but also passes the type of an entry if it is unknown.
fn each(
    image: &Image,
    node: NodeId,
    from: DirCursor,
    visit: &mut dyn FnMut(DirEntry<'_>, Option<u16>) -> ControlFlow<()>,
) -> Result<()> {
    let dir = image.dir(node)?;
    let (run, done) = (from.0 >> 9, from.0 & 0x1ff);
    let mut listing = ListingReader::open(image, node, &dir, run)?;
    let mut bad = PassedOver::default();
    while listing.next_run()? {
        while let Some(listed) = listing.next_entry()? {
            let entry = match listed {
                Listed::Entry(entry) => entry,
                Listed::Bad { error, .. } => {
                    bad.add(error)?;
                    continue;
                }
            };
            if listing.run == run && listing.done <= done {
                continue;
            }
            let shown = DirEntry {
                name: listing.name(),
                node: entry.node,
                kind: entry.kind,
                next: DirCursor(listing.run << 9 | listing.done),
            };
            if visit(shown, entry.unknown_type).is_break() {
                return Ok(());
            }
        }
    }
    bad.end()
}

/// Finds the entry `wanted`. Starts from the nearest directory index, or from a nearer remembered
/// name.
pub fn lookup(image: &Image, node: NodeId, wanted: &[u8]) -> Result<Option<NodeId>> {
    let dir = image.dir(node)?;
    if dir.len() <= SHORT || !image.is_sorted() {
        return ListingReader::by_index(image, node, &dir, wanted)?.find(wanted);
    }
    let passed = match image.looked_up.get(node) {
        Remembered::Landmarks(landmarks) => {
            return match landmarks.before(wanted) {
                Some(place) => ListingReader::at_place(image, node, &dir, place)?.find(wanted),
                // The first name is always remembered, and `wanted` sorts before it.
                None => Ok(None),
            };
        }
        Remembered::Unfit => None,
        Remembered::Passed(passed) => Some(passed),
    };
    let mut listing = ListingReader::by_index(image, node, &dir, wanted)?;
    let from = listing.at;
    let found = listing.find(wanted)?;
    if let Some(passed) = passed {
        let passed = passed + (listing.at - from);
        // Do not read more of the listing from a server than lookups need.
        let known = if passed >= u64::from(dir.len()) && !image.blocks.is_slow() {
            remembered(image, node, &dir)
        } else {
            Remembered::Passed(passed)
        };
        image.looked_up.set(node, known);
    }
    Ok(found)
}

/// Reads the names that later lookups start from. A bad entry does not fail lookups of entries
/// before it.
fn remembered(image: &Image, node: NodeId, dir: &Dir) -> Remembered {
    match landmarks(image, node, dir) {
        Ok(Some(landmarks)) => Remembered::Landmarks(Arc::new(landmarks)),
        // A later attempt may succeed.
        Err(Error::Io { .. }) => Remembered::Passed(0),
        Ok(None) | Err(_) => Remembered::Unfit,
    }
}

/// Reads a whole listing and collects names to remember. Returns `None` if they would take too much
/// memory.
fn landmarks(image: &Image, node: NodeId, dir: &Dir) -> Result<Option<Landmarks>> {
    let mut listing = ListingReader::open(image, node, dir, 0)?;
    let (mut landmarks, mut entries) = (Landmarks::default(), 0_u64);
    while listing.next_run()? {
        loop {
            let place = listing.place();
            match listing.next_entry()? {
                None => break,
                Some(Listed::Bad { .. }) => continue,
                Some(Listed::Entry(_)) => {}
            }
            if entries.is_multiple_of(landmarks::EVERY) {
                landmarks.push(listing.name(), place);
            }
            entries += 1;
        }
        if landmarks.weight() > image.looked_up.most() {
            return Ok(None);
        }
    }
    Ok(Some(landmarks))
}

/// Reports directory indexes with a wrong target, for `check`.
pub fn check_indexes(image: &Image, node: NodeId, dir: &Dir) -> Result<()> {
    let mut indexes = Indexes::new(image, node, dir)?;
    while let Some(at) = indexes.next()? {
        let (mut listing, index) = (at.listing(image, node, dir)?, indexes.done - 1);
        let found = listing.next_run()? && matches!(listing.next_entry()?, Some(Listed::Entry(_)));
        if !found || listing.name() != indexes.name() {
            let check = Check::DirIndex {
                index,
                at: at.at,
                size: dir.len(),
            };
            return Err(check.at(Some(node), indexes.cursor.offset()));
        }
    }
    Ok(())
}

/// Reports entries of unknown type, with a reference outside of the inode table, or with another
/// type than their inode, for `check`. Ignores unreadable inodes, which reading reports.
pub fn check_entries(image: &Image, node: NodeId, report: &mut dyn FnMut(Check)) -> Result<()> {
    each(image, node, DirCursor::START, &mut |entry, unknown_type| {
        if let Some(found) = unknown_type {
            report(Check::EntryType { found });
        }
        let name = || text(entry.name);
        match image.inode(entry.node) {
            Ok(inode) if inode.file_type != entry.kind => report(Check::EntryKind {
                name: name(),
                says: entry.kind.name(),
                found: inode.file_type.name(),
            }),
            Err(Error::StaleNode(node)) => report(Check::EntryReference {
                name: name(),
                reference: Reference::from_raw(node.0),
                len: image.inodes.len(),
            }),
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// A directory entry without its name.
struct ParsedEntry {
    node: NodeId,
    kind: FileType,
    /// The type in the entry, if it is unknown; `kind` then comes from the inode.
    unknown_type: Option<u16>,
}

enum Listed {
    Entry(ParsedEntry),
    Bad {
        error: Error,
        /// Whether the name is valid, so that a lookup may ask for it.
        has_name: bool,
    },
}

struct ListingReader<'i> {
    image: &'i Image,
    node: NodeId,
    cursor: Cursor<'i>,
    /// Offset of the cursor in the listing.
    at: u64,
    len: u64,
    /// Offset of the current run's header in the listing.
    run: u64,
    /// Whether the reader came from the listing's start, so that its positions may be remembered.
    is_sure: bool,
    block: u32,
    /// Number of entries of the run that were read, and their total.
    done: u64,
    count: u64,
    name: [u8; NAME_MAX],
    name_len: usize,
    /// Buffer for names that cross two blocks.
    spare: [u8; NAME_MAX],
}

impl<'i> ListingReader<'i> {
    /// Opens the listing at the run whose header is at offset `run`.
    fn open(image: &'i Image, node: NodeId, dir: &Dir, run: u64) -> Result<Self> {
        let len = u64::from(dir.len());
        let mut at = Mark {
            at: 0,
            reference: dir.start,
            data: 0,
        };
        if run >= MARK_EVERY {
            at = image.positions.before(node, run).unwrap_or(at);
        }
        let mut listing = Self::start(image, node, len, at)?;
        let skip = run.min(len) - at.at;
        if skip > 0 {
            listing.cursor.skip(skip)?;
            listing.at += skip;
        }
        Ok(listing)
    }

    /// Opens the listing at the last run that an index names and that starts at or before `wanted`.
    fn by_index(image: &'i Image, node: NodeId, dir: &Dir, wanted: &[u8]) -> Result<Self> {
        let mut indexes = Indexes::new(image, node, dir)?;
        let mut found = None;
        while let Some(at) = indexes.next()? {
            if indexes.name() > wanted {
                break;
            }
            found = Some(at);
        }
        match found {
            Some(at) => at.listing(image, node, dir),
            None => Self::open(image, node, dir, 0),
        }
    }

    fn start(image: &'i Image, node: NodeId, len: u64, mark: Mark) -> Result<Self> {
        // The reference of an empty listing may be the end of its table.
        let reference = if len == 0 {
            Reference::from_raw(0)
        } else {
            mark.reference
        };
        Ok(Self {
            image,
            node,
            cursor: image.directories_at(reference, node)?,
            at: mark.at,
            len,
            run: mark.at,
            is_sure: true,
            block: 0,
            done: 0,
            count: 0,
            name: [0; NAME_MAX],
            name_len: 0,
            spare: [0; NAME_MAX],
        })
    }

    fn at_place(image: &'i Image, node: NodeId, dir: &Dir, place: EntryPlace) -> Result<Self> {
        let mark = Mark {
            at: place.at,
            reference: place.reference,
            data: 0,
        };
        let listing = Self::start(image, node, u64::from(dir.len()), mark)?;
        Ok(Self {
            is_sure: false,
            block: place.block,
            done: place.done,
            count: place.count,
            ..listing
        })
    }

    fn place(&self) -> EntryPlace {
        EntryPlace {
            at: self.at,
            reference: self.cursor.reference(),
            block: self.block,
            done: self.done,
            count: self.count,
        }
    }

    /// Finds the entry with that name from the current position on.
    fn find(&mut self, wanted: &[u8]) -> Result<Option<NodeId>> {
        // A bad entry might have had this name.
        let mut missing = Ok(None);
        loop {
            while let Some(listed) = self.next_entry()? {
                let entry = match listed {
                    Listed::Entry(entry) => entry,
                    Listed::Bad { error, has_name } => {
                        if has_name && missing.is_ok() {
                            missing = Err(error);
                        }
                        continue;
                    }
                };
                match self.name().cmp(wanted) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Ok(Some(entry.node)),
                    // Names are sorted, which every read checks.
                    std::cmp::Ordering::Greater if self.image.is_sorted() => return missing,
                    std::cmp::Ordering::Greater => {}
                }
            }
            if !self.next_run()? {
                return missing;
            }
        }
    }

    fn name(&self) -> &[u8] {
        self.name.get(..self.name_len).unwrap_or_default()
    }

    fn fail<T>(&self, check: Check) -> Result<T> {
        Err(check.at(Some(self.node), self.cursor.offset()))
    }

    fn take(&mut self, len: usize) -> Result<()> {
        let len = forerun_io::u64_from(len);
        let left = self.len - self.at;
        if len > left {
            return self.fail(Check::ListingCut { left });
        }
        self.at += len;
        Ok(())
    }

    /// Advances from the end of a run to the next header.
    fn next_run(&mut self) -> Result<bool> {
        if self.at >= self.len {
            return Ok(false);
        }
        self.run = self.at;
        if self.is_sure && self.len > MARK_EVERY {
            let mark = Mark {
                at: self.at,
                reference: self.cursor.reference(),
                data: 0,
            };
            let last = self.image.positions.before(self.node, self.at);
            if self.at >= last.map_or(MARK_EVERY, |last| last.at + MARK_EVERY) {
                self.image.positions.note(self.node, mark);
            }
        }
        self.take(self.image.listing_lens().0)?;
        let header = self.image.dir_header(&mut self.cursor)?;
        let count = u64::from(header.count.get()) + 1;
        if count > u64::from(DIR_RUN) {
            return self.fail(Check::RunLen { count });
        }
        self.block = header.start_block.get();
        (self.done, self.count) = (0, count);
        Ok(true)
    }

    /// Reads the next entry of the run. The name of a good entry is then in [`name`](Self::name).
    fn next_entry(&mut self) -> Result<Option<Listed>> {
        if self.done >= self.count {
            return Ok(None);
        }
        self.take(self.image.listing_lens().1)?;
        let raw = self.image.dir_entry(&mut self.cursor)?;
        let len = usize::from(raw.size.get()) + 1;
        self.take(len)?;
        self.done += 1;
        if let Some(check) = self.read_name(len)? {
            return Ok(Some(Listed::Bad {
                has_name: !matches!(check, Check::Name { .. }),
                error: check.at(Some(self.node), self.cursor.offset()),
            }));
        }
        let node = NodeId(Reference::new(self.block, raw.offset.get()).raw());
        let found = raw.kind.get();
        let (kind, unknown_type) = match inode::file_type(found) {
            Some(kind) => (kind, None),
            None => match self.image.inode(node) {
                Ok(inode) => (inode.file_type, Some(found)),
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(_) => {
                    let check = Check::EntryType { found };
                    return Ok(Some(Listed::Bad {
                        error: check.at(Some(self.node), self.cursor.offset()),
                        has_name: true,
                    }));
                }
            },
        };
        Ok(Some(Listed::Entry(ParsedEntry {
            node,
            kind,
            unknown_type,
        })))
    }

    /// Reads and checks the name of an entry. If the version sorts names, it must sort after the
    /// previous one. Returns the failed check.
    fn read_name(&mut self, len: usize) -> Result<Option<Check>> {
        let (limit, is_sorted) = (self.image.limits.name_len, self.image.is_sorted());
        let Some(spare) = self.spare.get_mut(..len) else {
            self.cursor.skip(forerun_io::u64_from(len))?;
            let (name, source) = (String::new(), NameError::TooLong { len, limit });
            return Ok(Some(Check::Name { name, source }));
        };
        let name = self.cursor.bytes(spare)?;
        let before = self.name.get(..self.name_len).unwrap_or_default();
        let check = match check_name(name, limit) {
            Err(source) => Some(Check::Name {
                name: text(name),
                source,
            }),
            Ok(()) if is_sorted && !before.is_empty() && before >= name => Some(Check::NameOrder {
                name: text(name),
                before: text(before),
            }),
            Ok(()) => None,
        };
        if check.is_some() {
            return Ok(check);
        }
        // `spare` and `self.name` have the same length.
        if let Some(kept) = self.name.get_mut(..len) {
            kept.copy_from_slice(name);
        }
        self.name_len = len;
        Ok(None)
    }
}

struct Indexes<'i> {
    image: &'i Image,
    cursor: Cursor<'i>,
    dir: Dir,
    node: NodeId,
    done: u16,
    name: [u8; NAME_MAX],
    name_len: usize,
}

/// The target of a directory index.
#[derive(Clone, Copy)]
struct IndexAt {
    at: u32,
    block: u32,
}

impl<'i> Indexes<'i> {
    fn new(image: &'i Image, node: NodeId, dir: &Dir) -> Result<Self> {
        Ok(Self {
            image,
            cursor: image.inodes_at(dir.index_at, node)?,
            dir: dir.clone(),
            node,
            done: 0,
            name: [0; NAME_MAX],
            name_len: 0,
        })
    }

    fn name(&self) -> &[u8] {
        self.name.get(..self.name_len).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<IndexAt>> {
        if self.done >= self.dir.indexes {
            return Ok(None);
        }
        let raw = self.image.dir_index(&mut self.cursor)?;
        let (at, index) = (raw.index.get(), self.done);
        let len = raw.size.get();
        let name = usize::try_from(len)
            .ok()
            .and_then(|len| self.name.get_mut(..=len));
        let (Some(name), true) = (name, at < self.dir.len()) else {
            let size = self.dir.len();
            return Err(
                Check::DirIndex { index, at, size }.at(Some(self.node), self.cursor.offset())
            );
        };
        self.name_len = name.len();
        self.cursor.read_into(name)?;
        self.done += 1;
        Ok(Some(IndexAt {
            at,
            block: raw.start_block.get(),
        }))
    }
}

impl IndexAt {
    /// Opens the listing at the index's target. If the listing starts within a metadata block, the
    /// index counts from the same offset in its own block.
    fn listing<'i>(self, image: &'i Image, node: NodeId, dir: &Dir) -> Result<ListingReader<'i>> {
        let within = (dir.start.offset() + forerun_io::usize_from(u64::from(self.at)))
            % ondisk::METADATA_BLOCK;
        let mark = Mark {
            at: u64::from(self.at),
            reference: Reference::new(self.block, u16::try_from(within).unwrap_or(0)),
            data: 0,
        };
        let mut listing = ListingReader::start(image, node, u64::from(dir.len()), mark)?;
        listing.is_sure = false;
        Ok(listing)
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
