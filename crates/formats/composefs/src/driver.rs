//! The composefs driver: shows an EROFS image as overlayfs would show it over a layer of objects.
//!
//! The driver looks up an object when its bytes are first needed or the file is opened, never for
//! lookups, stat or listings. Everything else comes from the EROFS driver, without the attributes
//! that belong to overlayfs.

use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_erofs::Erofs;
use forerun_io::{BlobId, ReadAt};
use forerun_vfs::{
    Blobs, Capabilities, Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType,
    Metadata, NodeId, Objects, OpenWith, Place, Problem, Result, Verifier, Verity, VolumeInfo,
};

use crate::error::Check;
use crate::object::{ObjectTable, Wanted};
use crate::ondisk::{HEADER_LEN, Header};
use crate::overlay::{Attributes, Shown, below, shown};

/// An open composefs image. Node ids are those of EROFS.
pub struct Composefs {
    metadata: Erofs,
    objects: ObjectTable,
    volume: VolumeInfo,
    version: Option<u32>,
}

impl Composefs {
    /// Opens the image at the start of `with.metadata`. `with.blobs` opens its objects.
    pub fn open(with: OpenWith) -> Result<Self> {
        let source = Arc::clone(&with.metadata);
        let objects = ObjectTable::new(Arc::clone(&with.blobs.resolve), with.blobs.verity);
        // Opened first, because EROFS reports what is wrong with an image that is too short for any
        // header.
        let metadata = Erofs::open(with)?;
        let mut head = [0; HEADER_LEN];
        let read = source.read_exact_at(0, &mut head);
        read.map_err(|error| Error::io(0, HEADER_LEN, error))?;
        let mut volume = metadata.volume().clone();
        volume.format = "composefs";
        // An EROFS image that is not from a composefs writer has no header.
        let version = Header::parse(&head).map(|header| header.composefs_version);
        if let Some(version) = version {
            let version = version.to_string();
            volume.details.insert(0, ("composefs version", version));
        }
        Ok(Self {
            metadata,
            objects,
            volume,
            version,
        })
    }

    /// Returns the format version in the header, or `None` for an image without the header.
    pub const fn version(&self) -> Option<u32> {
        self.version
    }

    /// Returns the path that the image gives for the contents of a regular file, without the
    /// leading slash. The path may have any bytes. `None` if there is no redirect.
    pub fn redirect(&self, node: NodeId) -> Result<Option<Vec<u8>>> {
        let redirect = Attributes::of(&self.metadata, node)?.redirect;
        Ok(redirect.as_deref().map(below))
    }

    /// Returns the EROFS driver, which shows the attributes of overlayfs too.
    pub(crate) const fn layer(&self) -> &Erofs {
        &self.metadata
    }

    /// Returns the object with the contents of a regular file, or `None` if the image itself has
    /// the contents.
    fn object(&self, node: NodeId) -> Result<Option<Wanted>> {
        let attributes = Attributes::of(&self.metadata, node)?;
        let Some((payload, digest)) = attributes.payload(node)? else {
            return Ok(None);
        };
        if digest.is_none() && self.objects.verity() == Verity::Require {
            return Err(Check::NoDigest.at(node));
        }
        let size = self.metadata.metadata(node)?.size;
        Ok(Some(Wanted {
            payload,
            digest,
            size,
        }))
    }

    fn is_whiteout(&self, node: NodeId) -> Result<bool> {
        let metadata = self.metadata.metadata(node)?;
        Ok(metadata.kind == FileType::CharDevice && metadata.device == Device::default())
    }
}

impl FileSystem for Composefs {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.metadata.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        self.metadata.metadata(node)
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let Some(node) = self.metadata.lookup(dir, name)? else {
            return Ok(None);
        };
        Ok((!self.is_whiteout(node)?).then_some(node))
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failed = None;
        self.metadata.read_dir(dir, from, &mut |entry| {
            if entry.kind == FileType::CharDevice {
                match self.is_whiteout(entry.node) {
                    Ok(false) => {}
                    Ok(true) => return ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            visit(entry)
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        self.metadata.read_link(node)
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.metadata
            .xattrs(node, &mut |name, value| match shown(name) {
                Shown::Plain(name) => visit(name, value),
                Shown::Unescaped(name) => visit(&name, value),
                Shown::Hidden => {}
            })
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.metadata.metadata(node)?.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let Some(object) = self.object(node)? else {
            return self.metadata.map(node, range, visit);
        };
        let logical = range.start..range.end.min(object.size);
        if logical.is_empty() {
            return Ok(());
        }
        let place = Place::Stored {
            blob: self.objects.number(object)?,
            offset: logical.start,
        };
        let _end = visit(Extent { logical, place });
        Ok(())
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let mut facts = self.metadata.describe(node)?;
        if let Some(node) = node
            && self.metadata.metadata(node)?.kind == FileType::Regular
            && let Ok(Some(object)) = self.object(node)
        {
            let path = object.payload.path();
            facts.push(("object", String::from_utf8_lossy(&path).into_owned()));
            let digest = object
                .digest
                .map_or_else(|| "none".into(), |d| d.to_string());
            facts.push(("object digest", digest));
        }
        Ok(facts)
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        self.metadata.check(node, report)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(&self.metadata),
            verifier: Some(self),
            blobs: Some(self),
            objects: Some(self),
            driver: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Verifier for Composefs {
    /// Objects are compared with the digests in the image if the caller requires it.
    fn proves(&self, place: &Place) -> bool {
        let is_object = matches!(place, Place::Stored { blob, .. } if *blob != BlobId::IMAGE);
        is_object && self.objects.verity() != Verity::Off
    }

    fn unproven_metadata(&self) -> Option<u64> {
        self.metadata.unproven_metadata()
    }
}

impl Blobs for Composefs {
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        self.objects.open(blob)
    }

    fn devices(&self) -> u32 {
        let blobs = self.metadata.capabilities().blobs;
        blobs.map_or(0, Blobs::devices)
    }
}

impl Objects for Composefs {
    fn is_current(&self, blob: BlobId) -> bool {
        self.objects.is_current(blob)
    }

    fn backing(&self, node: NodeId) -> Result<Option<File>> {
        if self.metadata.metadata(node)?.kind != FileType::Regular {
            return Ok(None);
        }
        match self.object(node)? {
            Some(object) if object.size > 0 => self.objects.open_file(self.objects.number(object)?),
            _ => Ok(None),
        }
    }
}
