//! The formats that can be made, and the options of each. An option of another format than the
//! chosen one is refused: it would do nothing.

use clap::{Args, ValueEnum};
use forerun::build::{BuildError, Priorities};
use forerun::{RomfsOptions, Writer};

use super::squashfs::SquashfsArgs;
use crate::error::{Failure, Result};
use crate::size;

/// The formats that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewFormat {
    /// Small and simple, read by Linux; keeps no owners, permissions or times
    Romfs,
    /// Compressed, read by Linux; keeps everything
    Squashfs,
}

/// What a format keeps besides names and contents.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    /// Its name.
    pub format: &'static str,
    /// Owners, permissions and times.
    pub owners: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

/// A format and how images of it are made.
#[derive(Args, Debug)]
pub struct FormatArgs {
    /// Format of the image
    #[arg(long, value_name = "NAME")]
    pub format: NewFormat,
    /// Threads that read and compress; 0 for one per CPU. The image does not depend on it
    /// [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub threads: Option<u16>,
    #[command(flatten)]
    romfs: RomfsArgs,
    #[command(flatten)]
    squashfs: SquashfsArgs,
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
    /// What it keeps.
    pub const fn keeps(self) -> Keeps {
        let (format, all) = match self {
            Self::Romfs => ("romfs", false),
            Self::Squashfs => ("squashfs", true),
        };
        Keeps {
            format,
            owners: all,
            xattrs: all,
        }
    }
}

impl FormatArgs {
    /// The writer, after a check of all options. `priorities` and `xattrs` come from elsewhere on
    /// the command line.
    pub fn writer(&self, priorities: Priorities, xattrs: bool) -> Result<Writer> {
        match self.format {
            NewFormat::Romfs => {
                refuse(self.squashfs.first_given(), "squashfs", "romfs")?;
                if !priorities.is_empty() {
                    refuse(Some("--sort"), "squashfs", "romfs")?;
                }
                Ok(Writer::Romfs(self.romfs.options()))
            }
            NewFormat::Squashfs => {
                refuse(self.romfs.first_given(), "romfs", "squashfs")?;
                let mut options = self.squashfs.options()?;
                options.priorities = priorities;
                options.xattrs = xattrs;
                options.threads = self.threads.map_or(0, usize::from);
                options.validate().map_err(|error| match error {
                    BuildError::Format { reason, .. } => Failure::usage(reason),
                    other => other.into(),
                })?;
                Ok(Writer::Squashfs(options))
            }
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

/// The first option that was given.
pub fn first(flags: &[(bool, &'static str)]) -> Option<&'static str> {
    let mut given = flags.iter().filter(|(given, _)| *given);
    given.next().map(|(_, flag)| *flag)
}

fn refuse(flag: Option<&str>, of: &str, format: &str) -> Result<()> {
    match flag {
        Some(flag) => {
            let message = format!("{flag} is an option of {of}; the image is to be {format}");
            Err(Failure::usage(message))
        }
        None => Ok(()),
    }
}

fn parse_align(text: &str) -> std::result::Result<u32, String> {
    let bytes = size::parse(text)?;
    match u32::try_from(bytes) {
        Ok(align) if align.is_power_of_two() && (16..=65536).contains(&align) => Ok(align),
        _ => Err("not a power of two from 16 to 64K".to_string()),
    }
}
