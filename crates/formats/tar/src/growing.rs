//! An archive that is used while it is read.
//!
//! One thread reads it in one pass ([`GrowingTar::read`]). Others ask meanwhile: for a name, which is answered as soon
//! as its member has come; for bytes of a file, as soon as the span that they are in is complete; for a listing, or a
//! name that is not there, once the archive has ended. A member that comes later may replace one that was shown: the
//! id of the first is stale then, and no id is used twice.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use forerun_io::{Limits, ReadAt};
use forerun_spans::{Compression, GrowingSpans, SPOOL};
use forerun_vfs::{
    BlobId, DirCursor, DirEntry, EncodedBlock, Error, Extent, FileSystem, FileType, Metadata,
    NodeId, OpenWith, Place, Problem, Region, Result, VolumeInfo,
};

use crate::driver::{Places, Tar, VisitPlace, map};
use crate::header::BLOCK;
use crate::node::{self, Node};
use crate::shared::{Growing, SharedTree};
use crate::tree::Builder;

/// An archive that is used while it is read.
pub struct GrowingTar {
    growing: Growing,
    whole: OnceLock<Arc<dyn FileSystem>>,
    /// Bytes of the file.
    len: u64,
}

/// An answer, or the archive that gives it.
enum Answer<'a, T> {
    Early(T),
    Whole(&'a dyn FileSystem),
}

impl GrowingTar {
    /// Creates an archive of which nothing was read, in a file of `len` bytes that starts with `head`. It is a layer:
    /// its hard links may name files of lower ones.
    #[must_use]
    pub fn new(head: &[u8], len: u64, limits: &Limits) -> Self {
        let tree = Arc::new(SharedTree::new(Builder::new(limits, true)));
        let spans = Compression::of(head).map(|compression| {
            let tree = Arc::clone(&tree);
            Arc::new(GrowingSpans::new(compression, move || tree.notify()))
        });
        Self {
            growing: Growing { tree, spans },
            whole: OnceLock::new(),
            len,
        }
    }

    /// Reads the archive, once. What was read is not whole yet: see [`complete`](Self::complete).
    ///
    /// # Errors
    /// Those of opening an archive.
    pub fn read(&self, with: &OpenWith) -> Result<Arc<dyn FileSystem>> {
        let tar = Tar::read(with, Some(&self.growing))?;
        Ok(Arc::new(tar))
    }

    /// Answers everything from the archive that was read: its bytes are what they should be.
    pub fn complete(&self, read: Arc<dyn FileSystem>) {
        self.whole.get_or_init(|| read);
        self.growing.tree.notify();
    }

    /// Fails everything from now on.
    pub fn fail(&self, error: Error) {
        self.growing.tree.fail(error);
    }

    /// Fails what would have to wait, because the bytes do not come at the moment; or lets it wait again.
    pub fn stall(&self, reason: Option<Error>) {
        self.growing.tree.stall(reason);
    }

    /// Returns whether the bytes do not come at the moment.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.growing.tree.is_stalled()
    }

    /// Returns the answer as soon as the tree so far has one, or the archive is whole.
    fn ask<T>(
        &self,
        mut question: impl FnMut(&Builder) -> Result<Option<T>>,
    ) -> Result<Answer<'_, T>> {
        if let Some(whole) = self.whole.get() {
            return Ok(Answer::Whole(&**whole));
        }
        self.growing.tree.ask(|builder| {
            if let Some(whole) = self.whole.get() {
                return Ok(Some(Answer::Whole(&**whole)));
            }
            let early = builder.map(&mut question).transpose()?;
            Ok(early.flatten().map(Answer::Early))
        })
    }

    /// Waits until the archive is whole.
    fn whole(&self) -> Result<&dyn FileSystem> {
        match self.ask(|_| Ok(None::<()>))? {
            Answer::Whole(whole) => Ok(whole),
            // The question has no answer.
            Answer::Early(()) => Err(Error::Unsupported("an archive in part".to_string())),
        }
    }

    /// Visits the places of decoded bytes, and waits for those that have not come.
    fn places(
        &self,
        spans: &GrowingSpans,
        mut range: Range<u64>,
        visit: VisitPlace<'_>,
    ) -> Result<ControlFlow<()>> {
        while !range.is_empty() {
            let found = self.growing.tree.ask(|_| {
                let found = spans.places(range.clone());
                // The end of the stream is known only then.
                Ok((!found.is_empty() || self.whole.get().is_some()).then_some(found))
            })?;
            let Some(end) = found.last().map(|(part, _)| part.end) else {
                break;
            };
            for (part, place) in found {
                if visit(part, place).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            range.start = end;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn map_early(
        &self,
        node: &Node,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failed = Ok(());
        match &self.growing.spans {
            // The bytes are fetched where they are.
            None => {
                let _ended = map(node, None, range, visit);
            }
            Some(spans) => {
                let places: Places<'_> = &mut |part, visit| match self.places(spans, part, visit) {
                    Ok(flow) => flow,
                    Err(error) => {
                        failed = Err(error);
                        ControlFlow::Break(())
                    }
                };
                let _ended = map(node, Some(places), range, visit);
            }
        }
        failed
    }
}

/// Returns whether the metadata of a node is known: of a directory that only paths have named so far, it is not. That
/// of the root is taken as it is, since every path leads through it.
fn is_described(node: NodeId, found: &Node, root: NodeId) -> bool {
    found.header.is_some() || node == root
}

impl FileSystem for GrowingTar {
    fn volume(&self) -> VolumeInfo {
        if let Some(whole) = self.whole.get() {
            return whole.volume();
        }
        let block = u32::try_from(BLOCK).unwrap_or(u32::MAX);
        let mut info = VolumeInfo::new("tar", self.len, block);
        info.has_xattrs = true;
        info.has_acls = true;
        info
    }

    fn root(&self) -> NodeId {
        Builder::root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let found = self.ask(|tree| {
            let found = tree.node(node)?;
            let found = found.filter(|found| is_described(node, found, self.root()));
            Ok(found.map(node::metadata))
        })?;
        match found {
            Answer::Early(metadata) => Ok(metadata),
            Answer::Whole(whole) => whole.metadata(node),
        }
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        match self.ask(|tree| tree.lookup(dir, name))? {
            Answer::Early(found) => Ok(Some(found)),
            Answer::Whole(whole) => whole.lookup(dir, name),
        }
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.whole()?.read_dir(dir, from, visit)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        match self.ask(|tree| tree.node(node)?.map(node::target).transpose())? {
            Answer::Early(target) => Ok(target),
            Answer::Whole(whole) => whole.read_link(node),
        }
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let found = self.ask(|tree| {
            let found = tree.node(node)?;
            let found = found.filter(|found| is_described(node, found, self.root()));
            Ok(found.map(|found| {
                let extra = found.extra.as_ref();
                extra.map_or(Vec::new(), |extra| extra.xattrs.clone())
            }))
        })?;
        match found {
            Answer::Early(found) => {
                for (name, value) in &found {
                    visit(name, value);
                }
                Ok(())
            }
            Answer::Whole(whole) => whole.xattrs(node, visit),
        }
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let found = self.ask(|tree| {
            let found = tree.node(node)?;
            Ok(found.map(|found| (found.kind, Node::clone(found))))
        })?;
        match found {
            Answer::Early((FileType::Regular, found)) => {
                node::expect_contents(&found, node)?;
                self.map_early(&found, range, visit)
            }
            Answer::Early((FileType::Directory, _)) => Err(Error::IsADirectory),
            Answer::Early(_) => Err(Error::NotAFile),
            Answer::Whole(whole) => whole.map(node, range, visit),
        }
    }

    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        if let (None, Some(spans)) = (self.whole.get(), &self.growing.spans)
            && blob == SPOOL
            && let Some(spool) = spans.spool()
        {
            return Ok(spool);
        }
        self.whole()?.blob(blob)
    }

    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        match (self.whole.get(), &self.growing.spans) {
            (None, Some(spans)) => spans.history(block),
            (None, None) => Ok(Vec::new()),
            (Some(whole), _) => whole.history(block),
        }
    }

    fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        let whole = self.whole.get();
        whole.map_or(Ok(()), |whole| whole.verify(block, decoded))
    }

    fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        let whole = self.whole.get();
        whole.map_or(Ok(()), |whole| whole.verify_stored(block, stored))
    }

    fn proves(&self, place: &Place) -> bool {
        self.whole.get().is_some_and(|whole| whole.proves(place))
    }

    fn is_implied(&self, node: NodeId) -> bool {
        if let Some(whole) = self.whole.get() {
            return whole.is_implied(node);
        }
        let is_implied = self.growing.tree.peek(|tree| {
            let found = tree.node(node).ok().flatten();
            found.is_none_or(|found| found.header.is_none())
        });
        is_implied.unwrap_or(false)
    }

    fn links_below(&self, visit: &mut dyn FnMut(NodeId, &[u8])) {
        // Those that were not read yet are unknown: the caller settles first.
        if let Some(whole) = self.whole.get() {
            whole.links_below(visit);
        }
    }

    fn is_link_below(&self, node: NodeId) -> Result<bool> {
        let found = self.ask(|tree| {
            let found = tree.node(node)?;
            Ok(found.map(|found| node::is_link_below(found)))
        })?;
        match found {
            Answer::Early(is_link) => Ok(is_link),
            Answer::Whole(whole) => whole.is_link_below(node),
        }
    }

    fn is_settled(&self) -> bool {
        self.whole.get().is_some()
    }

    fn settle(&self) -> Result<()> {
        self.whole().map(drop)
    }

    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        self.whole()?.regions_of(node, visit)
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        self.whole()?.describe(node)
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        self.whole()?.check(node, report)
    }
}
