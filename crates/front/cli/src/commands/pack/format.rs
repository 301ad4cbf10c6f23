//! The formats that can be made, and the options of each. An option of another format than the
//! chosen one is refused: it would do nothing.

use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use forerun::Writer;
use forerun::build::{BuildError, Priorities, RomfsOptions, spool_dir};
use forerun_sandbox::Sandbox;

use super::composefs::ComposefsArgs;
use super::erofs::ErofsArgs;
use super::exfat::ExfatArgs;
use super::shared::{Compressor, SharedArgs};
use super::squashfs::SquashfsArgs;
use super::suffix::format_of;
use crate::confine::NAMES;
use crate::error::{Failure, Result};
use crate::size;
use crate::target::Target;

/// The formats that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewFormat {
    /// Small and simple, read by Linux; keeps no owners, permissions or times
    Romfs,
    /// Compressed, read by Linux; keeps everything
    Squashfs,
    /// Laid out for fast access, read by Linux; keeps everything
    Erofs,
    /// Metadata only; files go to a store that images share. Keeps everything
    Composefs,
    /// Read and written by cameras, cars, Windows, macOS and Linux; keeps times, no owners or links
    Exfat,
}

/// Properties that a format keeps besides names and contents.
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
    /// Threads that read and compress; 0 for one per CPU [default: 0]
    ///
    /// Fewer work where memory is scarce. The image does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub threads: Option<u16>,
    #[command(flatten)]
    romfs: RomfsArgs,
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
}

/// Options of romfs.
#[derive(Args, Debug)]
struct RomfsArgs {
    /// Start the data of each file at a multiple of this: a power of two from 16 to 64K. With 4096,
    /// reads of pages go straight through [default: 16]
    #[arg(help_heading = "romfs", long, value_name = "BYTES", value_parser = parse_align)]
    align: Option<u32>,
    /// Volume name [default: rom]
    #[arg(help_heading = "romfs", long, value_name = "NAME")]
    volume_name: Option<String>,
}

impl NewFormat {
    /// Returns the properties that it keeps.
    pub const fn keeps(self) -> Keeps {
        let (format, owners, times) = match self {
            Self::Romfs => ("romfs", false, false),
            Self::Squashfs => ("squashfs", true, true),
            Self::Erofs => ("erofs", true, true),
            Self::Composefs => ("composefs", true, true),
            Self::Exfat => ("exfat", false, true),
        };
        Keeps {
            format,
            owners,
            times,
            xattrs: owners,
        }
    }
}

/// Options that the same formats take.
struct Group {
    /// The first option of the group that was given.
    given: Option<&'static str>,
    /// The format that messages name as the one of these options.
    of: &'static str,
    /// The formats that take them.
    taken_by: &'static [NewFormat],
}

impl FormatArgs {
    /// Lists the options that not all formats take. `is_sorted` if `--sort` was given, which is elsewhere on
    /// the command line.
    fn groups(&self, is_sorted: bool) -> [Group; 8] {
        use NewFormat::{Composefs, Erofs, Exfat, Romfs, Squashfs};
        let group = |given, of, taken_by| Group {
            given,
            of,
            taken_by,
        };
        let clusters = self.erofs.clusters.first_given();
        let sort = is_sorted.then_some("--sort");
        [
            group(self.romfs.first_given(), "romfs", &[Romfs]),
            group(
                self.shared.first_given(),
                "squashfs and erofs",
                &[Squashfs, Erofs],
            ),
            group(self.squashfs.first_given(), "squashfs", &[Squashfs]),
            group(clusters, "erofs", &[Erofs, Exfat]),
            group(self.erofs.first_given(), "erofs", &[Erofs]),
            group(self.composefs.first_given(), "composefs", &[Composefs]),
            group(self.exfat.first_given(), "exfat", &[Exfat]),
            group(sort, "squashfs", &[Squashfs]),
        ]
    }

    /// Returns the format of the image: what was asked for, or what the suffix of `output` stands for.
    pub fn chosen(&self, output: &Path) -> Result<NewFormat> {
        self.format.map_or_else(|| format_of(output), Ok)
    }

    /// Refuses a format that the runtime of an AppImage does not read.
    pub fn check_appimage(&self) -> Result<()> {
        match self.format {
            None | Some(NewFormat::Squashfs) => Ok(()),
            Some(other) => {
                let format = other.keeps().format;
                let message =
                    format!("an AppImage has a squashfs image, and --format says {format}");
                Err(Failure::usage(message))
            }
        }
    }

    /// Creates the writer of the image in an AppImage, as [`writer`](Self::writer) does.
    pub fn appimage_writer(&self, priorities: Priorities, xattrs: bool) -> Result<Writer> {
        self.refuse_others(NewFormat::Squashfs, !priorities.is_empty())?;
        self.squashfs_writer(Compressor::Zstd, priorities, xattrs)
    }

    fn squashfs_writer(
        &self,
        default: Compressor,
        priorities: Priorities,
        xattrs: bool,
    ) -> Result<Writer> {
        let mut options = self.squashfs.options(&self.shared, default)?;
        options.priorities = priorities;
        options.xattrs = xattrs;
        options.threads = self.threads.map_or(0, usize::from);
        options.validate().map_err(unfit)?;
        Ok(Writer::Squashfs(options))
    }

    /// Refuses the first option that the chosen format does not take.
    fn refuse_others(&self, chosen: NewFormat, is_sorted: bool) -> Result<()> {
        let format = chosen.keeps().format;
        for group in self.groups(is_sorted) {
            if let Some(flag) = group.given
                && !group.taken_by.contains(&chosen)
            {
                let of = group.of;
                let message = format!("{flag} is an option of {of}; the image is to be {format}");
                return Err(Failure::usage(message));
            }
        }
        Ok(())
    }

    /// Creates the writer of a format, after a check of all options. `priorities` and `xattrs` come from
    /// elsewhere on the command line.
    pub fn writer(
        &self,
        chosen: NewFormat,
        priorities: Priorities,
        xattrs: bool,
        output: &Path,
    ) -> Result<Writer> {
        self.refuse_others(chosen, !priorities.is_empty())?;
        let threads = self.threads.map_or(0, usize::from);
        match chosen {
            NewFormat::Romfs => Ok(Writer::Romfs(self.romfs.options())),
            NewFormat::Squashfs => self.squashfs_writer(Compressor::Gzip, priorities, xattrs),
            NewFormat::Erofs => {
                let mut options = self.erofs.options(&self.shared)?;
                options.xattrs = xattrs;
                options.threads = threads;
                options.validate().map_err(unfit)?;
                Ok(Writer::Erofs(options))
            }
            NewFormat::Composefs => {
                let mut options = self.composefs.options()?;
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
    /// Creates the file for data outside the image, which must be given its name at the end.
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

    /// Returns whether files of the input become objects by a link.
    pub const fn links_objects(&self) -> bool {
        self.composefs.link_objects
    }

    /// Allows in `sandbox` what writing the image takes besides its own file: temporary files, and the
    /// store of objects.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        let sandbox = sandbox.write_below(spool_dir());
        match &self.composefs.objects {
            Some(store) => {
                // A rule needs a directory. If it cannot be made, the writer reports that.
                let _made = std::fs::create_dir_all(store);
                sandbox.write_below(store).keep(NAMES)
            }
            None => sandbox,
        }
    }
}

impl RomfsArgs {
    fn options(&self) -> RomfsOptions {
        let mut options = RomfsOptions::default();
        if let Some(align) = self.align {
            options.align = align;
        }
        if let Some(name) = &self.volume_name {
            options.volume_name = name.clone().into_bytes();
        }
        options
    }

    fn first_given(&self) -> Option<&'static str> {
        first(&[
            (self.align.is_some(), "--align"),
            (self.volume_name.is_some(), "--volume-name"),
        ])
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

fn parse_align(text: &str) -> std::result::Result<u32, String> {
    let bytes = size::parse(text)?;
    match u32::try_from(bytes) {
        Ok(align) if align.is_power_of_two() && (16..=65536).contains(&align) => Ok(align),
        _ => Err("not a power of two from 16 to 64K".to_string()),
    }
}
