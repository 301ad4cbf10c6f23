//! Writers by the names of their format and compressor.

#[cfg(feature = "erofs")]
use forerun_codec::FillEncoding;
#[cfg(feature = "squashfs")]
use forerun_codec::{BcjSet, Encoding, LzmaTuning, LzoAlgorithm, ZlibStrategies};

use crate::pack::{PackError, PackOptions};
use crate::writer::Writer;

impl PackOptions {
    /// Returns the writer that the options name.
    ///
    /// # Errors
    /// [`PackError::Option`] for an unknown name, or a level that the compressor does not have.
    pub fn writer(&self) -> Result<Writer, PackError> {
        match self.format.as_str() {
            #[cfg(feature = "squashfs")]
            "squashfs" => self.squashfs().map(Writer::Squashfs),
            #[cfg(feature = "erofs")]
            "erofs" => self.erofs().map(Writer::Erofs),
            #[cfg(feature = "romfs")]
            "romfs" => {
                self.plain()?;
                Ok(Writer::Romfs(crate::build::RomfsOptions::default()))
            }
            #[cfg(feature = "exfat")]
            "exfat" => {
                self.plain()?;
                let options = crate::build::ExfatOptions::default();
                Ok(Writer::Exfat(options))
            }
            other => Err(PackError::Option(format!(
                "format {other} cannot be packed; these can: {}",
                Self::FORMATS.join(", ")
            ))),
        }
    }

    /// The formats that a directory can be packed into. composefs is missing because it needs an
    /// object store too: use [`Writer`].
    pub const FORMATS: &'static [&'static str] = &[
        #[cfg(feature = "squashfs")]
        "squashfs",
        #[cfg(feature = "erofs")]
        "erofs",
        #[cfg(feature = "romfs")]
        "romfs",
        #[cfg(feature = "exfat")]
        "exfat",
    ];

    #[cfg(feature = "squashfs")]
    fn squashfs(&self) -> Result<crate::build::SquashfsOptions, PackError> {
        let name = self.compressor.as_deref().unwrap_or("gzip");
        let level = || self.level(name);
        let encoding = match name {
            "gzip" => Encoding::Zlib {
                level: level()?,
                window_bits: 15,
                strategies: ZlibStrategies::default(),
            },
            "zstd" => Encoding::Zstd { level: level()? },
            "lz4" | "lz4hc" | "lzo" | "xz" | "lzma" => {
                level()?;
                match name {
                    "lz4" => Encoding::Lz4 { high: false },
                    "lz4hc" => Encoding::Lz4 { high: true },
                    "lzo" => Encoding::Lzo {
                        algorithm: LzoAlgorithm::default(),
                        level: 8,
                    },
                    "xz" => Encoding::Xz {
                        dictionary: None,
                        filters: BcjSet::default(),
                        tuning: LzmaTuning::default(),
                    },
                    _ => Encoding::Lzma,
                }
            }
            other => return Err(self.no_compressor(other)),
        };
        let defaults = crate::build::SquashfsOptions::default();
        Ok(crate::build::SquashfsOptions {
            encoding,
            block_size: self.block_size.unwrap_or(defaults.block_size),
            threads: self.threads,
            xattrs: !self.no_xattrs,
            ..defaults
        })
    }

    #[cfg(feature = "erofs")]
    fn erofs(&self) -> Result<crate::build::ErofsOptions, PackError> {
        let name = self.compressor.as_deref().unwrap_or("none");
        let level = || self.level(name);
        let defaults = crate::build::ErofsOptions::default();
        let block_size = self.block_size.unwrap_or(defaults.block_size);
        let encoding = match name {
            "none" | "lz4" => {
                level()?;
                (name == "lz4").then_some(FillEncoding::Lz4)
            }
            "lz4hc" => Some(FillEncoding::Lz4Hc { level: level()? }),
            "deflate" => Some(FillEncoding::Deflate { level: level()? }),
            "zstd" => Some(FillEncoding::Zstd {
                level: level()?,
                // The largest window that Linux accepts.
                window_log: 20,
            }),
            other => return Err(self.no_compressor(other)),
        };
        Ok(crate::build::ErofsOptions {
            block_size,
            compression: encoding.map(|encoding| crate::build::Compression {
                cluster_size: block_size,
                ..crate::build::Compression::new(encoding)
            }),
            threads: self.threads,
            xattrs: !self.no_xattrs,
            ..defaults
        })
    }
}
