use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::str::FromStr;

use clap::Args;
use forerun::build::ExfatOptions;

use super::format::{Given, NewFormat};
use crate::error::{Failure, Result};
use crate::size;
use crate::values::parse_uuid;

/// Options of several formats that name an image and cut it into pieces.
#[derive(Args, Debug)]
pub struct ClusterArgs {
    /// Cluster size, a power of two. EROFS: size of a compressed unit, from a block to 1M [default:
    /// a block]. exFAT: allocation unit, from a sector to 32M [default: 4K for volumes up to 256M,
    /// 32K up to 32G, 128K above]
    #[arg(help_heading = "Volume", long, value_name = "BYTES", value_parser = size::parse, hide_short_help = true)]
    pub cluster_size: Option<u64>,
    /// Volume label (romfs, EROFS, exFAT)
    ///
    /// At most 16 bytes in EROFS and 11 characters in exFAT. The default of romfs is rom.
    #[arg(help_heading = "Volume", long, value_name = "NAME")]
    pub label: Option<String>,
}

impl ClusterArgs {
    pub const fn given(&self) -> [Given; 2] {
        use NewFormat::{Erofs, Exfat, Romfs};
        [
            (
                self.cluster_size.is_some(),
                "--cluster-size",
                &[Erofs, Exfat],
            ),
            (self.label.is_some(), "--label", &[Romfs, Erofs, Exfat]),
        ]
    }
}

/// Options of exFAT.
#[derive(Args, Debug)]
pub struct ExfatArgs {
    /// Size of an exFAT volume, or +SIZE for the size of its free space
    ///
    /// The default is the size that the contents need.
    #[arg(help_heading = "Volume", long, value_name = "SIZE")]
    volume_size: Option<VolumeSize>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Accept names that end with dots; Linux needs the mount option keep_last_dots to show them
    #[arg(help_heading = "exFAT", long)]
    keep_last_dots: bool,
    /// Mark zeros at the end of files as never written, so that copies of the volume can leave them
    /// out. Linux before 6.8 shows such files without these zeros
    #[arg(help_heading = "exFAT", long)]
    sparse_tails: bool,
}

/// The size of a volume: in total, or of its free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VolumeSize {
    Total(u64),
    Free(u64),
}

impl FromStr for VolumeSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.strip_prefix('+') {
            Some(free) => size::parse(free).map(Self::Free),
            None => size::parse(text).map(Self::Total),
        }
    }
}

/// Options of a volume, whatever it will hold.
#[derive(Args, Debug)]
pub struct VolumeArgs {
    /// Sector size: 512, 1024, 2048 or 4096 [default: the sector size of the device, or 512 in a
    /// file]
    #[arg(help_heading = "exFAT", long, value_name = "BYTES", value_parser = size::parse)]
    sector_size: Option<u64>,
    /// Alignment of data, a power of two. exFAT: of the FAT and the clusters [default: 1M for
    /// volumes of 64M and more, otherwise a cluster]. romfs: of each file, 16 to 64K [default: 16]
    #[arg(help_heading = "Volume", long, value_name = "BYTES", value_parser = size::parse, hide_short_help = true)]
    pub align: Option<u64>,
    /// Serial number of the volume, such as 1234-ABCD [default: derived from its contents]
    #[arg(help_heading = "exFAT", long, value_name = "HEX", value_parser = parse_serial)]
    serial: Option<u32>,
    /// GUID of the volume [default: none]
    #[arg(help_heading = "exFAT", long, value_name = "GUID", value_parser = parse_uuid)]
    guid: Option<[u8; 16]>,
}

impl ExfatArgs {
    pub fn options(&self, cluster: &ClusterArgs, output: &Path) -> Result<ExfatOptions> {
        let (size, free) = match self.volume_size {
            None => (None, 0),
            Some(VolumeSize::Total(size)) => (Some(size), 0),
            Some(VolumeSize::Free(free)) => (None, free),
        };
        Ok(ExfatOptions {
            size,
            free,
            keep_last_dots: self.keep_last_dots,
            sparse_tails: self.sparse_tails,
            ..self.volume.options(cluster, sector_of(output)?)?
        })
    }

    pub const fn given(&self) -> [Given; 7] {
        use NewFormat::{Exfat, Romfs};
        let volume = &self.volume;
        [
            (self.volume_size.is_some(), "--volume-size", &[Exfat]),
            (volume.sector_size.is_some(), "--sector-size", &[Exfat]),
            (volume.align.is_some(), "--align", &[Romfs, Exfat]),
            (volume.serial.is_some(), "--serial", &[Exfat]),
            (volume.guid.is_some(), "--guid", &[Exfat]),
            (self.keep_last_dots, "--keep-last-dots", &[Exfat]),
            (self.sparse_tails, "--sparse-tails", &[Exfat]),
        ]
    }
}

impl VolumeArgs {
    pub const fn with_align(align: Option<u64>) -> Self {
        Self {
            sector_size: None,
            align,
            serial: None,
            guid: None,
        }
    }

    /// Converts the arguments into the library's options. `sector` is the sector size of the target
    /// device.
    pub fn options(&self, cluster: &ClusterArgs, sector: u32) -> Result<ExfatOptions> {
        let short = |flag: &str, value: Option<u64>| match value.map(u32::try_from) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(Failure::usage(format!("{flag}: too large"))),
        };
        let defaults = ExfatOptions::default();
        let sector_size = short("--sector-size", self.sector_size)?.unwrap_or(sector);
        if sector_size < sector {
            let message =
                format!("--sector-size {sector_size}: the device has sectors of {sector} bytes");
            let failure = Failure::usage(message);
            return Err(failure.hint("no system can mount a volume with smaller sectors"));
        }
        Ok(ExfatOptions {
            cluster_size: short("--cluster-size", cluster.cluster_size)?,
            sector_size,
            align: short("--align", self.align)?,
            label: cluster.label.clone().unwrap_or_default().into_bytes(),
            serial: self.serial,
            guid: self.guid.map(on_volume),
            ..defaults
        })
    }
}

/// Returns the sector size of the device at `output`, or 512 for a file.
fn sector_of(output: &Path) -> Result<u32> {
    let is_device = |metadata: std::fs::Metadata| metadata.file_type().is_block_device();
    if !output.metadata().is_ok_and(is_device) {
        return Ok(ExfatOptions::default().sector_size);
    }
    let file = std::fs::File::open(output);
    let sector = file.and_then(|file| Ok(rustix::fs::ioctl_blksszget(file)?));
    sector.map_err(|error| Failure::output(&error).of(output.display()))
}

/// Converts a GUID to its on-disk form. The first three fields are little-endian numbers.
const fn on_volume(guid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = guid;
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

fn parse_serial(text: &str) -> std::result::Result<u32, String> {
    let digits = text.replace('-', "");
    let hex = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(&digits, 16).ok().filter(|_| hex);
    number.ok_or_else(|| "not a serial number such as 1234-ABCD".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers() {
        assert_eq!(parse_serial("1234-ABCD"), Ok(0x1234_ABCD));
        assert_eq!(parse_serial("1234abcd"), Ok(0x1234_ABCD));
        for wrong in ["", "1234", "+123-4567", "1234-ABCDE", "wxyz-1234"] {
            assert!(parse_serial(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_guid_lies_on_the_volume_with_low_bytes_first() {
        let guid = parse_uuid("00112233-4455-6677-8899-aabbccddeeff");
        let on_volume = on_volume(guid.unwrap_or_default());
        assert_eq!(
            on_volume[..8],
            [0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66]
        );
        assert_eq!(
            on_volume[8..],
            [0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF]
        );
    }
}
