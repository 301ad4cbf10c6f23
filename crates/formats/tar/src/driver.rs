//! The tar driver, over an index in memory.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u32_from, u64_from};
use forerun_spans::{Compression, IndexOptions};
use forerun_vfs::{
    BlobId, Blobs, Capabilities, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, History,
    Inferred, KeepIndex, Layered, Layout, Metadata, NodeId, OpenWith, Place, Problem, ProvenTable,
    Region, Result, TablePlace, VolumeInfo, read_head,
};

use crate::header::BLOCK;
use crate::index::{Index, Pass};
use crate::kept;
use crate::node::{self, Node};
use crate::plain;
use crate::stream::{self, Stream};
use crate::toc::ztoc::{self, SpanDigests};
use crate::toc::{self, Chunks};
use crate::tree;

pub struct Tar {
    index: Index,
    contents: Contents,
    volume: VolumeInfo,
}

/// How the archive stores the contents of files.
pub enum Contents {
    Plain,
    /// In a compressed stream.
    Stream(Stream),
    /// In a compressed stream whose spans have digests in a table of contents.
    Verified(Stream, SpanDigests),
    /// In chunks that a table of contents lists.
    Pieces(Chunks),
}

impl Contents {
    const fn stream(&self) -> Option<&Stream> {
        match self {
            Contents::Stream(stream) | Contents::Verified(stream, _) => Some(stream),
            Contents::Plain | Contents::Pieces(_) => None,
        }
    }

    /// Returns the compression, and a fact about its size: the number of spans or chunks.
    fn compression(&self) -> Option<(Compression, (&'static str, usize))> {
        match self {
            Contents::Plain => None,
            Contents::Stream(stream) | Contents::Verified(stream, _) => {
                Some((stream.compression(), ("spans", stream.spans())))
            }
            Contents::Pieces(chunks) => Some((chunks.compression(), ("pieces", chunks.count()))),
        }
    }
}

impl Tar {
    /// Opens the archive at the start of `metadata`. Reads all headers; decodes the whole archive
    /// if it is compressed.
    pub fn open(metadata: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self> {
        let mut with = OpenWith::new(metadata);
        with.limits = limits.clone();
        Self::open_with(&with)
    }

    pub(crate) fn new(index: Index, contents: Contents) -> Self {
        Self {
            volume: volume(&index, &contents),
            index,
            contents,
        }
    }

    /// Opens the archive from its stored index, without reading the archive. Returns `None` if
    /// there is no stored index.
    pub(crate) fn kept(keep: &dyn KeepIndex, with: &OpenWith) -> Option<Self> {
        let len = with.metadata.len();
        let (index, spans) = kept::load(keep, len, &with.limits, with.archive.is_layer)?;
        let contents = spans.map_or(Contents::Plain, |spans| {
            Contents::Stream(Stream::kept(spans, len))
        });
        Some(Self::new(index, contents))
    }

    /// Opens the archive; from its table of contents if the caller has the digest of the table. In
    /// rescue mode, the archive ends at the first damage. Fails with [`Error::UnknownFormat`] for a
    /// compressed file without an archive, and with [`Error::Unsupported`] for multi-volume
    /// archives.
    pub fn open_with(with: &OpenWith) -> Result<Self> {
        let source = &*with.metadata;
        if let Some(table) = &with.archive.table {
            return Self::by_table(table, with);
        }
        // Rescue mode reads the present bytes instead of the stored index.
        let keep = with.archive.index.as_deref().filter(|_| !with.rescue);
        if let Some(kept) = keep.and_then(|keep| Self::kept(keep, with)) {
            return Ok(kept);
        }
        let head = read_head(source, BLOCK)?;
        let pass = Pass::new(&with.limits, with.archive.is_layer);
        let Some(compression) = Compression::of(&head) else {
            let index = plain::read(source, &head, with, (pass, keep))?;
            return Ok(Self::new(index, Contents::Plain));
        };
        let options = IndexOptions {
            limits: with.limits.clone(),
            rescue: with.rescue,
            spool: with.archive.spool.clone(),
            ..IndexOptions::default()
        };
        let (index, stream) = stream::read(source, compression, &options, (pass, keep))?;
        Ok(Self::new(index, Contents::Stream(stream)))
    }

    /// Opens the archive from its table of contents.
    fn by_table(table: &ProvenTable, with: &OpenWith) -> Result<Self> {
        let (limits, source) = (&with.limits, &*with.metadata);
        if let TablePlace::Beside(bytes) = &table.place {
            let (len, digest) = (source.len(), &table.digest);
            let archive = ztoc::open(len, bytes, digest, limits, with.archive.is_layer)?;
            let contents = Contents::Verified(archive.stream, archive.digests);
            return Ok(Self::new(archive.index, contents));
        }
        let (index, chunks) = toc::open(source, table, limits)?;
        Ok(Self::new(index, Contents::Pieces(chunks)))
    }
}

impl FileSystem for Tar {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.index.tree.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        self.index.tree.node(node).map(node::metadata)
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        self.index.tree.lookup(dir, name)
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.index.tree.read_dir(dir, from, visit)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        node::target(self.index.tree.node(node)?)
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        if let Some(extra) = &self.index.tree.node(node)?.extra {
            for (name, value) in &extra.xattrs {
                visit(name, value);
            }
        }
        Ok(())
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let id = node;
        let node = self.index.tree.node(node)?;
        match node.kind {
            FileType::Regular => {
                node::expect_contents(node, id)?;
                // A break by the visitor is not an error.
                let _ended = match &self.contents {
                    Contents::Plain => map(node, None, range, visit),
                    Contents::Stream(stream) | Contents::Verified(stream, _) => {
                        let places: Places<'_> = &mut |part, visit| stream.map(part, visit);
                        map(node, Some(places), range, visit)
                    }
                    Contents::Pieces(chunks) => chunks.map(node, range, &mut |logical, place| {
                        visit(Extent { logical, place })
                    }),
                };
                Ok(())
            }
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let Some(node) = node else {
            let mut fields = vec![
                ("length", self.index.facts.len.to_string()),
                ("members", self.index.facts.members.to_string()),
                ("nodes", self.index.tree.count().to_string()),
            ];
            if let Some((compression, (what, count))) = self.contents.compression() {
                fields.push(("compression", compression.name().to_string()));
                fields.push((what, count.to_string()));
            }
            return Ok(fields);
        };
        let node = self.index.tree.node(node)?;
        let header = match node.header {
            Some(header) => format!("{header:#x}"),
            None => "none".to_string(),
        };
        let is_entry = matches!(self.contents, Contents::Pieces(_));
        let mut fields = vec![
            (if is_entry { "entry" } else { "header" }, header),
            ("type", node.kind.name().to_string()),
            ("mode", format!("{:#o}", node.mode)),
            ("uid", node.uid.to_string()),
            ("gid", node.gid.to_string()),
            ("size", node.size.to_string()),
            (
                "mtime",
                format!("{}.{:09}", node.mtime.seconds, node.mtime.nanoseconds),
            ),
        ];
        if node.kind == FileType::Regular && !is_entry {
            fields.push(("data", format!("{:#x}", node.data)));
        }
        if let Some(pieces) = node.extra.as_ref().and_then(|extra| extra.pieces.as_ref()) {
            fields.push(("pieces", pieces.len().to_string()));
        }
        Ok(fields)
    }

    /// Reports problems found while the archive was opened. Opening has verified every header.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        if node.is_none() {
            for (at, check) in &self.index.facts.warnings {
                report(problem(false, check.clone().at(*at)));
            }
            if let Some(damage) = &self.index.damage {
                report(problem(true, damage.clone()));
            }
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let stream = self.contents.stream();
        Capabilities {
            layout: Some(self),
            verifier: match &self.contents {
                Contents::Plain => None,
                Contents::Stream(stream) => Some(stream),
                Contents::Verified(_, digests) => Some(digests),
                Contents::Pieces(chunks) => Some(chunks),
            },
            blobs: stream.map(|stream| -> &dyn Blobs { stream }),
            history: stream.map(|stream| -> &dyn History { stream }),
            inferred: Some(self),
            layered: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Tar {
    /// Visits the header of a member. Extended headers before it are not separated from the data of
    /// other members.
    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        let node = self.index.tree.node(node)?;
        if let (Contents::Plain, Some(header)) = (&self.contents, node.header) {
            let end = header + u64_from(BLOCK);
            let _ended = visit(Region::metadata("headers", header..end));
        }
        Ok(())
    }

    fn wanted_ahead(&self) -> Range<u64> {
        match &self.contents {
            Contents::Pieces(chunks) => chunks.prefetch.clone(),
            Contents::Plain | Contents::Stream(_) | Contents::Verified(..) => 0..0,
        }
    }
}

impl Inferred for Tar {
    fn is_implied(&self, node: NodeId) -> bool {
        let node = self.index.tree.node(node);
        node.is_ok_and(|node| node.header.is_none())
    }
}

impl Layered for Tar {
    fn links_below(&self, visit: &mut dyn FnMut(NodeId, &[u8])) {
        tree::links_below(&self.index.tree, visit);
    }
}

fn volume(index: &Index, contents: &Contents) -> VolumeInfo {
    let block = u32_from(u64_from(BLOCK));
    let stored = contents
        .stream()
        .map_or(index.facts.len, |stream| stream.len);
    let mut info = VolumeInfo::new("tar", stored, block);
    info.label.clone_from(&index.facts.label);
    info.has_xattrs = tree::has_xattrs(&index.tree);
    info.has_acls = tree::has_acls(&index.tree);
    info.left_out = index.facts.left_out;
    info.details = vec![("members", index.facts.members.to_string())];
    if let Some((compression, _)) = contents.compression() {
        let name = compression.name().to_string();
        info.details.push(("compression", name));
    }
    match contents {
        Contents::Plain => {}
        Contents::Stream(_) => {
            let len = index.facts.len.to_string();
            info.details.push(("archive length", len));
        }
        Contents::Verified(..) => {
            let verified = "each span, by a table of contents".to_string();
            info.details.push(("verified", verified));
        }
        Contents::Pieces(_) => {
            let verified = "each piece, by a table of contents".to_string();
            info.details.push(("verified", verified));
        }
    }
    let warnings = index.facts.warnings.iter();
    info.warnings = warnings
        .map(|(at, check)| format!("{check} (at {at:#x})"))
        .collect();
    if index.facts.more_warnings > 0 {
        let told = format!(
            "{} further members are left out or unusual",
            index.facts.more_warnings
        );
        info.warnings.push(told);
    }
    if let Some(damage) = &index.damage {
        info.warnings.push(damage.to_string());
    }
    info
}

const fn problem(fatal: bool, error: Error) -> Problem {
    Problem {
        node: None,
        fatal,
        error,
    }
}

/// A visitor of the locations of a stream's decoded bytes.
pub type VisitPlace<'v> = &'v mut dyn FnMut(Range<u64>, Place) -> ControlFlow<()>;
/// Visits the locations of a range of a stream's decoded bytes.
pub type Places<'p> = &'p mut dyn FnMut(Range<u64>, VisitPlace<'_>) -> ControlFlow<()>;

/// Maps a file. Its data ranges are stored, in the archive or in its stream; all ranges between
/// them are zero.
pub fn map(
    node: &Node,
    mut stream: Option<Places<'_>>,
    range: Range<u64>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let range = range.start..range.end.min(node.size);
    let mut give = |logical: Range<u64>, stored: Option<u64>| {
        let (start, end) = (logical.start.max(range.start), logical.end.min(range.end));
        if start >= end {
            return ControlFlow::Continue(());
        }
        let offset = stored.map(|offset| offset + (start - logical.start));
        match (offset, &mut stream) {
            (None, _) => visit(Extent {
                logical: start..end,
                place: Place::Zero,
            }),
            (Some(offset), None) => visit(Extent {
                logical: start..end,
                place: Place::Stored {
                    blob: BlobId::IMAGE,
                    offset,
                },
            }),
            (Some(offset), Some(stream)) => {
                let decoded = offset..offset + (end - start);
                stream(decoded, &mut |part, place| {
                    let logical = start + (part.start - offset)..start + (part.end - offset);
                    visit(Extent { logical, place })
                })
            }
        }
    };
    let Some(pieces) = node.extra.as_ref().and_then(|extra| extra.pieces.as_ref()) else {
        return give(0..node.size, Some(node.data));
    };
    let first = pieces.partition_point(|piece| piece.logical + piece.len <= range.start);
    let mut at = range.start;
    for piece in &pieces[first..] {
        if piece.logical >= range.end {
            break;
        }
        let end = piece.logical + piece.len;
        give(at.min(piece.logical)..piece.logical, None)?;
        give(piece.logical..end, Some(piece.stored))?;
        at = end;
    }
    give(at..node.size, None)
}
