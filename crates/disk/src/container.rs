use std::fmt;

/// The kind of file that contains an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// An AppImage of type 2: an executable followed by the image.
    AppImage,
    /// Any other executable that is followed by an image.
    Elf,
    Sif,
    AndroidSparse,
    Ubi,
    /// A compressed file, with the name of the compression.
    Compressed(&'static str),
    /// The disk of a virtual machine, with the name of its format. forerun does not read images in
    /// it.
    VirtualDisk(&'static str),
}

impl Container {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AppImage => "appimage",
            Self::Elf => "elf",
            Self::Sif => "sif",
            Self::AndroidSparse => "android-sparse",
            Self::Ubi => "ubi",
            Self::Compressed(name) | Self::VirtualDisk(name) => name,
        }
    }

    /// Returns whether the image is a contiguous range of the file.
    #[must_use]
    pub const fn is_contiguous(self) -> bool {
        matches!(self, Self::AppImage | Self::Elf | Self::Sif)
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compressed(name) => return write!(f, "{name} file"),
            Self::VirtualDisk(name) => return write!(f, "{name} image"),
            Self::AndroidSparse => "Android sparse image",
            Self::Ubi => "UBI flash dump",
            Self::AppImage => "AppImage (type 2)",
            Self::Elf => "ELF executable",
            Self::Sif => "SIF (Singularity Image Format)",
        })
    }
}
