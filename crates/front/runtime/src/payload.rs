//! Opens an AppImage and the image in it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt, Window};
use forerun_squashfs::Squashfs;
use forerun_vfs::{Error, OpenWith};

use crate::elf::Elf;
use crate::failure::Failure;

/// Cache budget for decoded metadata, in bytes: the inodes and names of some 100,000 files.
const METADATA: u64 = 8 << 20;

/// An ELF file followed by an image.
pub struct AppImage {
    file: Arc<FileSource>,
    elf: Elf,
}

impl AppImage {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let named = |error| Failure::io(&format!("opening {}", path.display()), &error);
        let file = File::open(path).map_err(named)?;
        let file = FileSource::from_file(file).map_err(named)?;
        let elf = Elf::read(&file)?;
        // Restore the kernel's readahead: a starting program reads adjacent blocks, and nothing
        // else reads ahead here.
        let normal = rustix::fs::Advice::Normal;
        let _best_effort = rustix::fs::fadvise(file.file(), 0, None, normal);
        let file = Arc::new(file);
        Ok(Self { file, elf })
    }

    pub const fn offset(&self) -> u64 {
        self.elf.end()
    }

    /// Returns the contents of an ELF section without trailing zeros.
    pub fn section(&self, name: &str) -> Result<Vec<u8>, Failure> {
        let found = self.elf.section(&*self.file, name)?;
        let mut bytes = found.unwrap_or_default();
        let end = bytes.iter().rposition(|&byte| byte != 0);
        bytes.truncate(end.map_or(0, |last| last + 1));
        Ok(bytes)
    }

    pub fn payload(&self) -> Result<(Squashfs, Arc<dyn ReadAt>), Failure> {
        let source = Window::new(Arc::clone(&self.file), self.offset(), None);
        let source = source.map_err(|error| Failure::io("finding the image", &error))?;
        if source.is_empty() {
            return Err(Failure::new(
                "this is a runtime without an image behind it; forerun pack --appimage makes AppImages",
            ));
        }
        let source: Arc<dyn ReadAt> = Arc::new(source);
        let mut with = OpenWith::new(Arc::clone(&source));
        with.cache = METADATA;
        match Squashfs::open(with) {
            Ok(driver) => Ok((driver, source)),
            Err(Error::UnknownFormat { .. }) => Err(Failure::new(format!(
                "the bytes behind the runtime, from byte {} on, are not a SquashFS image",
                self.offset()
            ))),
            Err(error) => Err(error.into()),
        }
    }
}
