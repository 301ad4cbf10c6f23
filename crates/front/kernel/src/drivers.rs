//! The formats that the kernel mounts: one row for each, with all that this crate knows of it.

/// A format, and the kernel's driver for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The format, in our terms.
    pub format: &'static str,
    /// The kernel's name of the filesystem.
    pub fstype: &'static str,
    /// The driver's reads of images in regular files; nothing where it reads block devices only.
    pub from_file: Option<FromFile>,
    /// Reads blocks past the page cache of its device: metadata is read ahead in the file below.
    pub bypasses_device_cache: bool,
    /// The files are objects of a store, shown by an overlayfs over the mount.
    pub has_objects: bool,
}

/// A driver's reads of images in regular files (Linux 6.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromFile {
    /// The mount option for direct reads of the file.
    pub direct: &'static str,
    /// The prefix of the names that the readahead of such mounts has in sysfs.
    pub readahead: &'static str,
}

/// A driver that reads block devices only, and nothing else that is special.
const BLOCK_DEVICE: Driver = Driver {
    format: "",
    fstype: "",
    from_file: None,
    bypasses_device_cache: false,
    has_objects: false,
};

const EROFS: Driver = Driver {
    format: "erofs",
    fstype: "erofs",
    from_file: Some(FromFile {
        direct: "directio",
        readahead: "erofs-",
    }),
    ..BLOCK_DEVICE
};

const DRIVERS: [Driver; 4] = [
    EROFS,
    Driver {
        format: "composefs",
        has_objects: true,
        ..EROFS
    },
    Driver {
        format: "romfs",
        fstype: "romfs",
        ..BLOCK_DEVICE
    },
    Driver {
        format: "squashfs",
        fstype: "squashfs",
        bypasses_device_cache: true,
        ..BLOCK_DEVICE
    },
];

/// The kernel's name of the filesystem that shows the objects of a store as files.
pub const OVERLAY: &str = "overlay";

/// Returns the driver for a format.
pub fn for_format(format: &str) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.format == format)
}

/// Returns what the driver with the kernel's name `fstype` does with regular files.
pub fn from_file(fstype: &str) -> Option<FromFile> {
    let driver = DRIVERS.iter().find(|driver| driver.fstype == fstype)?;
    driver.from_file
}

/// Returns whether this crate makes mounts of that type, in the kernel's terms.
pub fn mounts_type(fstype: &str) -> bool {
    let mut drivers = DRIVERS.iter();
    fstype == OVERLAY || drivers.any(|driver| driver.fstype == fstype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_types_are_found() {
        for (format, fstype) in [
            ("composefs", Some("erofs")),
            ("erofs", Some("erofs")),
            ("romfs", Some("romfs")),
            ("squashfs", Some("squashfs")),
            ("exfat", None),
            ("", None),
        ] {
            assert_eq!(for_format(format).map(|of| of.fstype), fstype, "{format}");
            assert_eq!(mounts_type(format), fstype == Some(format), "{format}");
        }
        assert!(mounts_type(OVERLAY));
        assert_eq!(from_file("erofs"), EROFS.from_file);
        assert_eq!(from_file(OVERLAY), None);
    }
}
