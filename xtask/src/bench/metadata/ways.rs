//! The ways in which the metadata of a tree is read.

use std::path::Path;

use anyhow::{Context, Result};
use forerun_measure::mount::{Access, Mount, Mounted, Other, Reader};

use crate::bench::erofs::{ErofsImage, ErofsInputs};

/// A way: a line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The image that is listed. A composefs image is mounted by the kernel with an overlayfs.
    pub image: ErofsImage,
    /// Its reader.
    pub by: By,
}

/// A reader of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The kernel's driver.
    Kernel(Reader),
    /// The same, after `forerun mount --via kernel` has read the metadata ahead.
    ViaKernel(Reader),
    /// forerun, through FUSE.
    Fuse,
}

const KERNEL: [By; 6] = [
    By::Kernel(Reader::Loop),
    By::ViaKernel(Reader::Loop),
    By::Kernel(Reader::DirectLoop),
    By::ViaKernel(Reader::DirectLoop),
    By::Kernel(Reader::File),
    By::ViaKernel(Reader::File),
];

/// Lists all ways: the image of mkfs.erofs, the same tree laid out by forerun, and as composefs.
pub fn all() -> Vec<Way> {
    let images = [ErofsImage::Tree, ErofsImage::Ours, ErofsImage::Composefs];
    let of = |image| {
        let readers = KERNEL.into_iter().chain([By::Fuse]);
        readers.map(move |by| Way { image, by })
    };
    images.into_iter().flat_map(of).collect()
}

impl Way {
    /// Returns the name of the image, for people.
    pub const fn image_name(self) -> &'static str {
        match self.image {
            ErofsImage::Ours => "EROFS of forerun",
            ErofsImage::Composefs => "composefs",
            _ => "EROFS of mkfs.erofs",
        }
    }

    /// Returns the name of the image in rows.
    pub const fn image_word(self) -> &'static str {
        match self.image {
            ErofsImage::Ours => "forerun",
            ErofsImage::Composefs => "composefs",
            _ => "mkfs",
        }
    }

    /// Returns the name of its reader, for people.
    pub fn reader_name(self) -> String {
        let through = |reader| match reader {
            Reader::Loop => "loop buffered",
            Reader::DirectLoop => "loop direct-io",
            Reader::File => "file",
        };
        let overlay = match self.image {
            ErofsImage::Composefs => " + overlayfs",
            _ => "",
        };
        match self.by {
            By::Kernel(reader) => format!("kernel, {}{overlay}", through(reader)),
            By::ViaKernel(reader) => {
                format!("--via kernel, {}{overlay}, prefetch", through(reader))
            }
            By::Fuse => "forerun FUSE".to_string(),
        }
    }

    /// Mounts.
    pub fn mount(self, inputs: &ErofsInputs) -> Result<Mount> {
        let image = inputs.image(self.image);
        let store = inputs.store(self.image);
        let objects = store.as_deref();
        match self.by {
            By::Kernel(reader) => kernel(&image, reader, objects).map(Mount::Other),
            By::ViaKernel(reader) => {
                let mounted = Other::via_kernel(&inputs.forerun, &image, reader, objects);
                mounted.map(|(mount, _said)| Mount::Other(mount))
            }
            By::Fuse => Mounted::with_objects(&inputs.forerun, &image, Access::ROOT, objects)
                .map(Mount::Forerun),
        }
        .with_context(|| self.text())
    }

    /// Returns the same work by the kernel alone, if it is the kernel that does it.
    pub const fn without_forerun(self) -> Option<Self> {
        match self.by {
            By::Kernel(reader) | By::ViaKernel(reader) => Some(Self {
                image: self.image,
                by: By::Kernel(reader),
            }),
            By::Fuse => None,
        }
    }

    /// Describes the way for people.
    pub fn text(self) -> String {
        format!("{}, {}", self.image_name(), self.reader_name())
    }

    /// Returns the filesystems that the kernel must have for it.
    pub const fn filesystems(self) -> &'static [&'static str] {
        match (self.by, self.image) {
            (By::Fuse, _) => &["fuse"],
            (_, ErofsImage::Composefs) => &["erofs", "overlay"],
            _ => &["erofs"],
        }
    }
}

fn kernel(image: &Path, reader: Reader, objects: Option<&Path>) -> Result<Other> {
    match objects {
        Some(objects) => Other::kernel_overlay(image, reader, objects),
        None => Other::kernel("erofs", image, reader),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_of_its_own() {
        let mut names: Vec<String> = all().into_iter().map(Way::text).collect();
        assert_eq!(names.len(), 21);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 21);
    }
}
