//! From a node and a range to bytes.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Counted, Counter, Limits, Observer, Purpose, saturating_usize, u64_from};
use forerun_vfs::{Error, FileSystem, FileType, NodeId, Place, Result};

use crate::{Bulk, Data, EngineOptions, MetadataSource};

/// Reads files of one image. Cheap to clone; used from many threads at once.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

struct Inner {
    fs: Arc<dyn FileSystem>,
    image: Counted,
    metadata: Arc<MetadataSource>,
    options: EngineOptions,
    limits: Limits,
}

impl Reader {
    /// A reader of `fs`, which reads its metadata through `metadata` and has its data in `image`.
    #[must_use]
    pub fn new(
        fs: Arc<dyn FileSystem>,
        image: Counted,
        metadata: Arc<MetadataSource>,
        options: EngineOptions,
        limits: Limits,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                fs,
                image,
                metadata,
                options,
                limits,
            }),
        }
    }

    /// The source of this image's metadata.
    #[must_use]
    pub fn metadata_source(&self) -> &MetadataSource {
        &self.inner.metadata
    }

    /// Sorts regular files by where their first byte is, so that reading them in this order reads
    /// the image forward. Files whose extents cannot be told keep to the front.
    pub fn physical_order(&self, nodes: &mut [NodeId]) {
        nodes.sort_by_cached_key(|&node| {
            let mut first = 0;
            let _fails_when_read = self.fs().map(node, 0..1, &mut |extent| {
                first = match extent.place {
                    Place::Stored { offset, .. } => offset,
                    Place::Encoded { block, .. } => block.offset,
                    Place::Zero | Place::Inline(_) => 0,
                };
                ControlFlow::Break(())
            });
            first
        });
    }

    /// A stream over many files in the order given, read ahead as a whole.
    #[must_use]
    pub fn bulk(&self, nodes: Vec<NodeId>) -> Bulk {
        Bulk::new(self.clone(), nodes)
    }

    /// The driver, for everything but data.
    #[must_use]
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.inner.fs
    }

    /// The bounds this image was opened with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// How it is read.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// Who counts.
    #[must_use]
    pub fn observer(&self) -> &Arc<Observer> {
        self.inner.image.observer()
    }

    /// Up to `len` bytes of `node` from `offset`: fewer only at the end of the file, none past it.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::NotAFile`], and what reading the metadata or the data
    /// gives. A range that holds one unreadable byte fails whole; others are not affected.
    pub fn read(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        let size = self.file_size(node)?;
        let len = saturating_usize(size.saturating_sub(offset).min(u64_from(len)));
        let mut out = vec![0; len];
        self.read_into(node, offset, &mut out)?;
        Ok(Data::owned(out))
    }

    /// As [`read`](Self::read), into the caller's buffer. Gives the number of bytes read.
    ///
    /// # Errors
    /// As [`read`](Self::read); the buffer's contents are unspecified then.
    pub fn read_into(&self, node: NodeId, offset: u64, out: &mut [u8]) -> Result<usize> {
        let size = self.file_size(node)?;
        let len = saturating_usize(size.saturating_sub(offset).min(u64_from(out.len())));
        let end = offset + u64_from(len);
        let mut result = Ok(());
        self.fs().map(node, offset..end, &mut |extent| {
            let from = extent.logical.start.max(offset);
            let to = extent.logical.end.min(end);
            let part = &mut out[saturating_usize(from - offset)..saturating_usize(to - offset)];
            result = self.fill(&extent.place, from - extent.logical.start, part);
            if result.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        result?;
        self.observer()
            .stats()
            .add(Counter::ServedBytes, u64_from(len));
        Ok(len)
    }

    /// First offset at or after `offset` that holds data, or nothing up to the end of the file.
    ///
    /// # Errors
    /// Those of [`FileSystem::map`].
    pub fn seek_data(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, |place| !matches!(place, Place::Zero))
    }

    /// First offset at or after `offset` that lies in a hole; the end of the file counts as one.
    /// Nothing where `offset` is at or past the end.
    ///
    /// # Errors
    /// Those of [`FileSystem::map`].
    pub fn seek_hole(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        let size = self.file_size(node)?;
        let hole = self.seek(node, offset, |place| matches!(place, Place::Zero))?;
        Ok(hole.or((offset < size).then_some(size)))
    }

    fn seek(
        &self,
        node: NodeId,
        offset: u64,
        wanted: impl Fn(&Place) -> bool,
    ) -> Result<Option<u64>> {
        let range: Range<u64> = offset..self.file_size(node)?;
        let mut found = None;
        self.fs().map(node, range, &mut |extent| {
            if wanted(&extent.place) {
                found = Some(extent.logical.start.max(offset));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn file_size(&self, node: NodeId) -> Result<u64> {
        let metadata = self.fs().metadata(node)?;
        match metadata.kind {
            FileType::Regular => Ok(metadata.size),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    fn fill(&self, place: &Place, skip: u64, out: &mut [u8]) -> Result<()> {
        match place {
            Place::Zero => out.fill(0),
            Place::Stored { offset, .. } => {
                let at = offset + skip;
                let result = self.inner.image.read(at, out, Purpose::Demand);
                result.map_err(|error| Error::io(at, out.len(), error))?;
            }
            Place::Inline(bytes) => {
                let from = saturating_usize(skip);
                out.copy_from_slice(&bytes[from..from + out.len()]);
            }
            Place::Encoded { .. } => return Err(Error::Unsupported("encoded blocks".into())),
        }
        Ok(())
    }
}
