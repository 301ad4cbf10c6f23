//! The formats that can be made, and their options. An option of another format is refused, because
//! it would have no effect.

use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use forerun::build::{BuildError, Priorities, RomfsOptions, spool_dir};
use forerun::{Image, Writer};
use forerun_sandbox::Sandbox;

use super::composefs::ComposefsArgs;
use super::erofs::ErofsArgs;
use super::exfat::ExfatArgs;
use super::shared::{Compressor, SharedArgs};
use super::sif::SifArgs;
use super::squashfs::SquashfsArgs;
use super::suffix::format_of;
use crate::confine::NAMES;
use crate::error::{Failure, Result};
use crate::target::Target;

/// The formats that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewFormat {
    /// Small and simple; no owners, permissions or times
    Romfs,
    /// Compressed; keeps everything
    Squashfs,
    /// Fast to read, compressed or not; keeps everything
    Erofs,
    /// Metadata only, with file contents in an object store that images share; keeps everything
    Composefs,
    /// Writable volume for cameras, cars, Windows, macOS and Linux; no owners or links
    Exfat,
    /// Container of Apptainer and Singularity, with a SquashFS image; keeps everything
    Sif,
}

/// Properties that a format stores besides names and contents.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    pub format: &'static str,
    pub owners: bool,
    pub times: bool,
    pub xattrs: bool,
}

/// A format and how images of it are made.
#[derive(Args, Debug)]
pub struct FormatArgs {
    /// Format of the image [default: by the suffix of OUTPUT]
    #[arg(long, value_name = "NAME")]
    format: Option<NewFormat>,
    /// Number of threads [default: 0, one for each CPU]
    ///
    /// forerun uses fewer threads if memory is scarce. The number does not change the image.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub threads: Option<u16>,
    #[command(flatten)]
    shared: SharedArgs,
    #[command(flatten)]
    squashfs: SquashfsArgs,
    #[command(flatten)]
    erofs: ErofsArgs,
    #[command(flatten)]
    composefs: ComposefsArgs,
    #[command(flatten)]
    exfat: ExfatArgs,
    #[command(flatten)]
    sif: SifArgs,
}

impl NewFormat {
    pub const fn keeps(self) -> Keeps {
        let (format, owners, times) = match self {
            Self::Romfs => ("romfs", false, false),
            Self::Squashfs => ("squashfs", true, true),
            Self::Erofs => ("erofs", true, true),
            Self::Composefs => ("composefs", true, true),
            Self::Exfat => ("exfat", false, true),
            Self::Sif => ("sif", true, true),
        };
        Keeps {
            format,
            owners,
            times,
            xattrs: owners,
        }
    }
}

/// Whether an option was given, its name, and the formats that accept it.
pub type Given = (bool, &'static str, &'static [NewFormat]);

impl FormatArgs {
    /// Lists the options that not all formats accept.
    fn given(&self) -> impl Iterator<Item = Given> {
        let clusters = self.erofs.clusters.given().into_iter();
        clusters
            .chain(self.exfat.given())
            .chain(self.shared.given())
            .chain(self.squashfs.given())
            .chain(self.erofs.given())
            .chain(self.composefs.given())
            .chain(self.sif.given())
    }

    pub fn chosen(&self, output: &Path) -> Result<NewFormat> {
        self.format.map_or_else(|| format_of(output), Ok)
    }

    /// Refuses a format that the runtime of an AppImage cannot read.
    pub fn check_appimage(&self) -> Result<()> {
        match self.format {
            None | Some(NewFormat::Squashfs) => Ok(()),
            Some(other) => {
                let format = other.keeps().format;
                let message =
                    format!("an AppImage needs a squashfs image, but --format is {format}");
                Err(Failure::usage(message))
            }
        }
    }

    /// Creates the writer of an AppImage's image, as [`writer`](Self::writer) does.
    pub fn appimage_writer(&self, xattrs: bool) -> Result<Writer> {
        self.refuse_others(NewFormat::Squashfs)?;
        self.squashfs_writer(Compressor::Zstd, xattrs)
    }

    fn squashfs_writer(&self, default: Compressor, xattrs: bool) -> Result<Writer> {
        let mut options = self.squashfs.options(&self.shared, default)?;
        if let Some(order) = &self.shared.order {
            options.priorities = Priorities::from_files(&[order])?;
        }
        options.xattrs = xattrs;
        options.threads = self.threads.map_or(0, usize::from);
        options.validate().map_err(unfit)?;
        Ok(Writer::Squashfs(options))
    }

    /// Refuses the first option that the chosen format does not accept.
    fn refuse_others(&self, chosen: NewFormat) -> Result<()> {
        // The image in a SIF file takes the options of its own format.
        let image = match chosen {
            NewFormat::Sif => NewFormat::Squashfs,
            other => other,
        };
        for (given, flag, taken_by) in self.given() {
            if given && !taken_by.contains(&chosen) && !taken_by.contains(&image) {
                let formats = taken_by.iter().map(|format| format.keeps().format);
                let formats: Vec<_> = formats.collect();
                let of = formats.join(" and ");
                let format = chosen.keeps().format;
                let message = format!("{flag} is an option of {of}, but the image is {format}");
                return Err(Failure::usage(message));
            }
        }
        Ok(())
    }

    /// Checks all options, and creates the writer of a format. `xattrs` is whether extended
    /// attributes are stored.
    pub fn writer(&self, chosen: NewFormat, xattrs: bool, output: &Path) -> Result<Writer> {
        self.refuse_others(chosen)?;
        let threads = self.threads.map_or(0, usize::from);
        match chosen {
            NewFormat::Romfs => Ok(Writer::Romfs(self.romfs_options()?)),
            NewFormat::Squashfs | NewFormat::Sif => self.squashfs_writer(Compressor::Gzip, xattrs),
            NewFormat::Erofs => {
                let mut options = self.erofs.options(&self.shared)?;
                options.xattrs = xattrs;
                options.threads = threads;
                options.validate().map_err(unfit)?;
                Ok(Writer::Erofs(options))
            }
            NewFormat::Composefs => {
                let mut options = self.composefs.options(self.erofs.inline)?;
                options.threads = threads;
                options.validate().map_err(unfit)?;
                Ok(Writer::Composefs(options))
            }
            NewFormat::Exfat => {
                let options = self.exfat.options(&self.erofs.clusters, output)?;
                options.validate().map_err(unfit)?;
                Ok(Writer::Exfat(options))
            }
        }
    }
}

impl FormatArgs {
    fn romfs_options(&self) -> Result<RomfsOptions> {
        let mut options = RomfsOptions::default();
        if let Some(align) = self.exfat.volume.align {
            options.align = match u32::try_from(align) {
                Ok(align) if align.is_power_of_two() && (16..=65536).contains(&align) => align,
                _ => {
                    let message = format!("--align {align}: not a power of two from 16 to 64K");
                    return Err(Failure::usage(message));
                }
            };
        }
        if let Some(label) = &self.erofs.clusters.label {
            options.volume_name = label.clone().into_bytes();
        }
        Ok(options)
    }

    /// Begins the output: in a SIF file, a header comes before the image.
    pub fn begin(&self, format: NewFormat, target: &mut Target) -> Result<()> {
        match format {
            NewFormat::Sif => target.begin_sif(self.sif.new_file(self.shared.image_time()?)?),
            _ => Ok(()),
        }
    }

    /// Creates the file for data outside the image. The caller commits it at the end.
    pub fn blob(&self, writer: &mut Writer, force: bool) -> Result<Option<Target>> {
        let (Writer::Erofs(options), Some(path)) = (writer, &self.erofs.blobdev) else {
            return Ok(None);
        };
        let mut target = Target::create(path, force, "file data")?;
        let file = target.file().try_clone();
        let file = file.map_err(|error| target.failed(&error))?;
        options.blob = Some(Arc::new(file));
        Ok(Some(target))
    }

    /// Keeps properties of an image that is converted to its own format.
    pub fn keep(&self, image: &Image, writer: &mut Writer) {
        self.composefs.keep_version(image, writer);
    }

    /// Returns whether input files become objects by hard links.
    pub const fn links_objects(&self) -> bool {
        self.composefs.link_objects
    }

    /// Allows in `sandbox` the writes besides the image itself: temporary files, and the object
    /// store.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        let sandbox = sandbox.write_below(spool_dir());
        match &self.composefs.objects {
            Some(store) => {
                // A rule needs an existing directory. If it cannot be made, the writer reports
                // that.
                let _made = std::fs::create_dir_all(store);
                sandbox.write_below(store).keep(NAMES)
            }
            None => sandbox,
        }
    }
}

/// Returns the first option that was given.
pub fn first(flags: &[(bool, &'static str)]) -> Option<&'static str> {
    let mut given = flags.iter().filter(|(given, _)| *given);
    given.next().map(|(_, flag)| *flag)
}

/// Converts the error of options that contradict each other.
pub fn unfit(error: BuildError) -> Failure {
    match error {
        BuildError::Format { reason, .. } => Failure::usage(reason),
        other => other.into(),
    }
}
