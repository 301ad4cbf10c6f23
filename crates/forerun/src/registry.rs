//! The formats, one line each, and tables of what only some of them offer: repair, and object
//! stores.
//!
//! What few formats offer is not in [`Format`], so that its fields are the same for all, and a
//! driver without a repair or a store says nothing about them.

use forerun_vfs::Format;
use forerun_vfs::objects::ObjectFormat;
#[cfg(feature = "exfat")]
use forerun_vfs::repair::Repair;

/// Returns the readable formats.
#[must_use]
pub const fn formats() -> &'static [Format] {
    &[
        #[cfg(feature = "romfs")]
        forerun_romfs::FORMAT,
        #[cfg(feature = "squashfs")]
        forerun_squashfs::FORMAT,
        // Before EROFS, because composefs images are valid EROFS images too.
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
        // Last, because archives of 1979 have no magic number.
        #[cfg(feature = "tar")]
        forerun_tar::FORMAT,
    ]
}

/// Returns the names of the readable formats, in the order in which they are tried.
#[must_use]
pub fn format_names() -> Vec<&'static str> {
    formats().iter().map(|format| format.name).collect()
}

/// Returns the formats whose volumes can be repaired.
#[cfg(feature = "exfat")]
pub const fn repairs() -> &'static [Repair] {
    &[forerun_exfat::repair::REPAIR]
}

/// Returns the formats that keep file data in object stores.
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
