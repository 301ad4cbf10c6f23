//! The arguments of `forerun mount`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::{Via, help};
use crate::args::{LAYERS, RemoteArgs};

/// Mount an image on a directory
///
/// Returns when the image is mounted. A background process serves the mount until it is unmounted.
/// Works as root, as another user through fusermount3, and in a user namespace.
#[derive(Args, Clone, Debug)]
#[command(after_help = help::EXAMPLES, after_long_help = help::long_help())]
pub struct MountArgs {
    /// Stay in the foreground, and log to standard error
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, separated by commas; forerun mount --help-all lists them
    #[arg(short, long, value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Serve the mount with forerun (fuse) or with the kernel's driver [default: fuse]
    #[arg(long, value_name = "HOW")]
    pub via: Option<Via>,
    /// Record each request to the image in FILE, for forerun trace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9000
    #[cfg_attr(feature = "network", arg(long, value_name = "ADDR"))]
    #[cfg_attr(not(feature = "network"), arg(skip))]
    pub metrics: Option<String>,
    /// Append messages of the serving process to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Succeed if the image is mounted on the directory already
    ///
    /// Of several processes that mount one image at the same time, one mounts it, and the others wait for that.
    #[arg(long, conflicts_with_all = ["foreground", "partition", "command"])]
    pub if_needed: bool,
    /// Open the image as this format instead of detecting it
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Open partition N of the file; forerun scan shows the numbers
    #[arg(long, value_name = "N")]
    pub partition: Option<u32>,
    /// Stack several images as one tree, the lowest first; repeat for each
    ///
    /// Replaces the argument IMAGE. The images are stacked like the layers of a container.
    #[arg(id = LAYERS, long = "layer", value_name = "IMAGE", value_hint = ValueHint::FilePath, conflicts_with_all = ["format", "partition"])]
    pub layers: Vec<PathBuf>,
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[cfg_attr(
        feature = "network",
        doc = "File, device, https://, s3:// or oci:// name"
    )]
    #[cfg_attr(not(feature = "network"), doc = "File or device")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub image: PathBuf,
    /// Mount point
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Run this command, and unmount the image when the command ends
    ///
    /// The exit status is the status of the command, 128 plus the number of the signal that ended
    /// it, or 127 if the command does not exist. SIGINT, SIGTERM and SIGHUP are passed on to it.
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments, conflicts_with = "foreground")]
    pub command: Vec<OsString>,
    /// How mount(8) called, if it did.
    #[arg(skip)]
    pub helper: Option<HelperCall>,
    /// How another program would serve the mount, where forerun was called by its name.
    #[arg(skip)]
    pub like: LikeOther,
}

impl MountArgs {
    pub fn new(image: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            foreground: false,
            options: Vec::new(),
            via: None,
            trace: None,
            metrics: None,
            log: None,
            if_needed: false,
            format: None,
            partition: None,
            layers: Vec::new(),
            remote: RemoteArgs::default(),
            image: image.into(),
            dir: dir.into(),
            command: Vec::new(),
            helper: None,
            like: LikeOther::default(),
        }
    }
}

/// Differences when called by the name of another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LikeOther {
    /// `allow_other` does not imply `default_permissions`.
    pub permissive: bool,
    /// An unused mount is unmounted after this time without requests.
    pub idle: Option<Duration>,
}

/// Differences when called by mount(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperCall {
    /// Does everything except mounting.
    pub fake: bool,
    /// Ignores unknown mount options.
    pub sloppy: bool,
}
