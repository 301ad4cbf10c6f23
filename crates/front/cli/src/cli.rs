//! The command line: the program and its commands. The man pages and completions are made from these
//! definitions too, so a doc comment here is documentation.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::args::Global;
#[cfg(feature = "snapshotter")]
use crate::args::ImageArgs;
#[cfg(feature = "snapshotter")]
use crate::commands::snapshotter::SnapshotterArgs;
use crate::commands::{
    bench::{BenchArgs, child::BenchChildArgs},
    cache::CacheCommandArgs,
    cat::CatArgs,
    check::CheckArgs,
    completions::CompletionsArgs,
    convert::ConvertArgs,
    demo::DemoArgs,
    diff::DiffArgs,
    dump::DumpArgs,
    extract::ExtractArgs,
    gc::GcArgs,
    help::HelpArgs,
    info::InfoArgs,
    label::LabelArgs,
    ls::LsArgs,
    man::ManArgs,
    map::MapArgs,
    mkfs::MkfsArgs,
    pack::PackArgs,
    pull::PullArgs,
    push::PushArgs,
    restart::RestartArgs,
    scan::ScanArgs,
    status::StatusArgs,
    tar::TarArgs,
    trace::TraceArgs,
};
use crate::mount::MountArgs;
use crate::run::RunArgs;
use crate::umount::UmountArgs;

const EXAMPLES: &str = "\
Examples:
  forerun ls -lR firmware.img                what is in it?
  forerun cat firmware.img /etc/passwd       one file to standard output
  forerun extract -C out firmware.img        everything, to disk
  forerun mount firmware.img /mnt            browse it; forerun umount /mnt when done
  forerun pack --format romfs dir new.img    make one

Exit status: 0 done; 1 the image stood in the way (no such path, damage, a limit);
2 usage; 3 not an image of a known format; 4 the source could not be read; 5 the output
could not be written; 6 done in part; 7 not mounted; 8 all that was wrong was repaired.";

/// Open filesystem images without the kernel's drivers and without root: list, read, extract,
/// mount, make and check them
///
/// The format of an image is found by its content, never by its name. An image can be a file, a
/// block device, or - for standard input.
#[derive(Debug, Parser)]
#[command(name = "forerun", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
// There is one of it in a run.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
pub enum Command {
    Scan(ScanArgs),
    Info(InfoArgs),
    Label(LabelArgs),
    Ls(LsArgs),
    Map(MapArgs),
    Cat(CatArgs),
    Extract(ExtractArgs),
    Tar(TarArgs),
    Mount(MountArgs),
    Run(RunArgs),
    Umount(UmountArgs),
    Status(StatusArgs),
    Restart(RestartArgs),
    Pack(PackArgs),
    Convert(ConvertArgs),
    Mkfs(MkfsArgs),
    Push(PushArgs),
    Pull(PullArgs),
    Cache(CacheCommandArgs),
    Check(CheckArgs),
    Diff(DiffArgs),
    Dump(DumpArgs),
    Gc(GcArgs),
    #[cfg(feature = "snapshotter")]
    Snapshotter(SnapshotterArgs),
    Trace(TraceArgs),
    Bench(BenchArgs),
    Demo(DemoArgs),
    Completions(CompletionsArgs),
    Help(HelpArgs),
    #[command(hide = true)]
    Man(ManArgs),
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArgs),
    #[cfg(feature = "snapshotter")]
    #[command(name = "__layers", hide = true)]
    Layers(ImageArgs),
    #[command(name = "__bench", hide = true)]
    BenchChild(BenchChildArgs),
}

/// Print the paths in an image with which a command line may go on, one on a line
#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// The command line up to the cursor, without the program; the last word may be empty
    #[arg(value_name = "WORD", allow_hyphen_values = true, last = true)]
    pub words: Vec<OsString>,
}
