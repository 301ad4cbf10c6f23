//! The forerun commands that these programs use. The caller passes them as function pointers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forerun::Writer;
use forerun::build::Tree;

use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::Result;
use crate::target::Target;

pub struct Commands {
    /// Returns whether this process serves a mount in the background, after its parent has returned
    /// to the user.
    pub is_in_background: fn() -> bool,
    pub mount: fn(&Context, &MountCall) -> Result,
    pub label: fn(&Context, ImageArgs, String) -> Result,
    pub make_volume: fn(&Context, &VolumeCall) -> Result,
    pub repair: fn(&Context, RepairCall) -> Result,
    /// Writes a tree as an image, and optionally the data of its files to another file.
    pub make_image: MakeImage,
}

type MakeImage = fn(&Context, &Writer, &mut Tree, (Target, Option<Target>), &Path) -> Result;

/// A mount that a program requests.
#[derive(Default)]
pub struct MountCall {
    pub image: PathBuf,
    pub dir: PathBuf,
    pub format: &'static str,
    /// The arguments of `-o`.
    pub options: Vec<String>,
    pub foreground: bool,
    /// `allow_other` does not imply `default_permissions`.
    pub permissive: bool,
    /// An unused mount without requests for this time is unmounted.
    pub idle: Option<Duration>,
}

/// A volume that replaces the contents of a file or device.
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
    /// Keeps lost clusters as files.
    pub lost_found: bool,
}
