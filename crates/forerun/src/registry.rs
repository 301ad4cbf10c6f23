//! The formats, one line each.

use forerun_vfs::Format;

/// Returns the formats that can be read.
#[must_use]
pub const fn formats() -> &'static [Format] {
    &[
        #[cfg(feature = "romfs")]
        forerun_romfs::FORMAT,
        #[cfg(feature = "squashfs")]
        forerun_squashfs::FORMAT,
        // Before EROFS, since its images are valid EROFS images as well.
        #[cfg(feature = "composefs")]
        forerun_composefs::FORMAT,
        #[cfg(feature = "erofs")]
        forerun_erofs::FORMAT,
        #[cfg(feature = "exfat")]
        forerun_exfat::FORMAT,
        #[cfg(feature = "cramfs")]
        forerun_cramfs::FORMAT,
    ]
}

/// Returns the names of the formats that can be read, in the order in which they are tried.
#[must_use]
pub fn format_names() -> Vec<&'static str> {
    formats().iter().map(|format| format.name).collect()
}
