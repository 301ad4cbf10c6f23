//! The formats, one line each, and what only some of them offer: repair, and stores of objects.
//!
//! What few formats offer has a table of its own. [`Format`] is then the same few fields for all, and a
//! driver without a repair or a store says nothing about them.

use forerun_vfs::Format;
use forerun_vfs::objects::ObjectFormat;
#[cfg(feature = "exfat")]
use forerun_vfs::repair::Repair;

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
        #[cfg(feature = "zip")]
        forerun_zip::FORMAT,
        // Last: archives of 1979 have no magic number.
        #[cfg(feature = "tar")]
        forerun_tar::FORMAT,
    ]
}

/// Returns the names of the formats that can be read, in the order in which they are tried.
#[must_use]
pub fn format_names() -> Vec<&'static str> {
    formats().iter().map(|format| format.name).collect()
}

/// Returns the formats whose volumes can be repaired. The features of such formats bring
/// [`repair`](crate::repair).
#[cfg(feature = "exfat")]
pub const fn repairs() -> &'static [Repair] {
    &[forerun_exfat::repair::REPAIR]
}

/// Returns the formats that keep file data in stores of objects.
pub const fn object_formats() -> &'static [ObjectFormat] {
    &[
        #[cfg(feature = "composefs")]
        forerun_composefs::OBJECTS,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_formats_that_are_registered() {
        let names = format_names();
        let is_known = |name: &str| names.contains(&name);
        #[cfg(feature = "exfat")]
        assert!(repairs().iter().all(|repair| is_known(repair.format)));
        for objects in object_formats() {
            assert!(is_known(objects.format), "{objects:?}");
            assert_ne!(objects.format, objects.found_as);
        }
    }
}
