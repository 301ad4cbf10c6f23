//! The commands of forerun that some of the programs are built on. The program passes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forerun::Writer;
use forerun::build::Tree;

use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::Result;
use crate::target::Target;

pub struct Commands {
    /// Returns whether this process serves a mount for one that has returned to the caller.
    pub is_in_background: fn() -> bool,
    pub mount: fn(&Context, &MountCall) -> Result,
    /// Changes the label of a volume.
    pub label: fn(&Context, ImageArgs, String) -> Result,
    /// Makes an empty exFAT volume.
    pub make_volume: fn(&Context, &VolumeCall) -> Result,
    pub repair: fn(&Context, RepairCall) -> Result,
    /// Writes a tree as an image, and a file with data besides it.
    pub make_image: MakeImage,
}

type MakeImage = fn(&Context, &Writer, &mut Tree, (Target, Option<Target>), &Path) -> Result;

/// A mount that a program asks for.
#[derive(Default)]
pub struct MountCall {
    pub image: PathBuf,
    pub dir: PathBuf,
    pub format: &'static str,
    /// Words of `-o`.
    pub options: Vec<String>,
    pub foreground: bool,
    /// `allow_other` does not imply `default_permissions`.
    pub permissive: bool,
    /// The time without requests after which a mount that is not in use is taken down.
    pub idle: Option<Duration>,
}

/// A volume that replaces what a file or device holds.
pub struct VolumeCall {
    pub output: PathBuf,
    pub label: Option<String>,
    pub cluster: Option<u64>,
    pub boundary: Option<u64>,
}

/// A repair without an undo file.
pub struct RepairCall {
    pub image: ImageArgs,
    pub yes: bool,
    /// Keeps clusters that belong to nothing as files.
    pub lost_found: bool,
}
