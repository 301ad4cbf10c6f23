//! The formats that the kernel can mount, with the properties of their kernel drivers.

/// An image format and the kernel's driver for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// forerun's name of the format.
    pub format: &'static str,
    /// The kernel's name of the filesystem.
    pub fstype: &'static str,
    /// How the driver reads images in regular files; `None` if it reads only block devices.
    pub from_file: Option<FromFile>,
    /// The driver bypasses the page cache of the block device, so metadata is prefetched into the
    /// page cache of the backing file.
    pub bypasses_device_cache: bool,
    /// File contents are in an object store, which an overlayfs combines with this mount.
    pub has_objects: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromFile {
    pub direct: &'static str,
    /// Prefix of the mount's device name in `/sys/class/bdi`.
    pub readahead: &'static str,
}

/// The defaults: a driver that reads only block devices.
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

pub const OVERLAY: &str = "overlay";

pub fn for_format(format: &str) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.format == format)
}

/// Returns how the driver of the kernel filesystem type `fstype` reads regular files.
pub fn from_file(fstype: &str) -> Option<FromFile> {
    let driver = DRIVERS.iter().find(|driver| driver.fstype == fstype)?;
    driver.from_file
}

/// Returns whether this crate creates mounts of the kernel filesystem type `fstype`.
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
