//! `forerun pack` and `convert` to a SIF file: a SquashFS image as its root partition.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use forerun::unstable::disk::payload::{NewSif, ZERO_TIME, architectures};

use super::format::{Given, NewFormat};
use crate::error::{Failure, Result};
use crate::size::count_of;

/// The longest definition file that is taken.
const MAX_DEFINITION: u64 = 16 << 20;

/// Options of SIF files.
#[derive(Args, Debug)]
pub struct SifArgs {
    /// Definition file to keep in the SIF file
    #[arg(help_heading = "SIF", hide_short_help = true, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    definition: Option<PathBuf>,
    /// Architecture of the programs in the image [default: that of this machine]
    #[arg(help_heading = "SIF", hide_short_help = true, long, value_name = "NAME", value_parser = PossibleValuesParser::new(architectures()))]
    arch: Option<String>,
}

impl SifArgs {
    /// Lists the options that were given.
    pub const fn given(&self) -> [Given; 2] {
        const OWN: &[NewFormat] = &[NewFormat::Sif];
        [
            (self.definition.is_some(), "--definition", OWN),
            (self.arch.is_some(), "--arch", OWN),
        ]
    }

    /// Describes the file. `time` is that of the image, in seconds since 1970.
    pub fn new_file(&self, time: Option<i64>) -> Result<NewSif> {
        let definition = self.definition.as_deref().map(read).transpose()?;
        let arch = self.arch.as_deref().unwrap_or_else(|| this_machine());
        NewSif::new(arch, definition, time.unwrap_or(ZERO_TIME)).ok_or_else(|| {
            let message = format!("SIF files have no number for the architecture {arch}");
            Failure::usage(message).hint("--arch NAME names another")
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Failure::source(&error).of(path.display());
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(failed)?.take(MAX_DEFINITION + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    if count_of(bytes.len()) > MAX_DEFINITION {
        let failure = Failure::usage("longer than 16 MiB: not a definition file");
        return Err(failure.of(path.display()));
    }
    Ok(bytes)
}

/// Returns Go's name for the architecture of this machine.
fn this_machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "loongarch64" => "loong64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        other => other,
    }
}
