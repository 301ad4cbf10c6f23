//! The command line: the program and its commands. The man pages and completions are made from these
//! definitions too, so a doc comment here is documentation.

use std::ffi::{OsStr, OsString};

use clap::{Args, FromArgMatches, Parser, Subcommand};

use crate::args::Global;
#[cfg(feature = "snapshotter")]
use crate::args::ImageArgs;
#[cfg(feature = "snapshotter")]
use crate::commands::snapshotter::SnapshotterArgs;
#[cfg(feature = "measure")]
use crate::commands::{
    bench::{BenchArgs, child::BenchChildArgs},
    demo::DemoArgs,
};
#[cfg(feature = "network")]
use crate::commands::{cache::CacheCommandArgs, index::IndexArgs, pull::PullArgs, push::PushArgs};
use crate::commands::{
    cat::CatArgs, check::CheckArgs, completions::CompletionsArgs, convert::ConvertArgs,
    diff::DiffArgs, dump::DumpArgs, extract::ExtractArgs, gc::GcArgs, help::HelpArgs,
    info::InfoArgs, label::LabelArgs, ls::LsArgs, man::ManArgs, map::MapArgs, mkfs::MkfsArgs,
    pack::PackArgs, restart::RestartArgs, scan::ScanArgs, status::StatusArgs, tar::TarArgs,
    trace::TraceArgs,
};
use crate::mount::MountArgs;
use crate::run::RunArgs;
use crate::umount::UmountArgs;

/// The version, as `--version` prints it behind the name.
const VERSION: &str = match cfg!(feature = "network") {
    true => env!("CARGO_PKG_VERSION"),
    false => concat!(env!("CARGO_PKG_VERSION"), " lite, without network"),
};

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
#[command(name = "forerun", version = VERSION, after_help = EXAMPLES, max_term_width = 100)]
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
    #[cfg(feature = "network")]
    Push(PushArgs),
    #[cfg(feature = "network")]
    Pull(PullArgs),
    #[cfg(feature = "network")]
    Index(IndexArgs),
    #[cfg(feature = "network")]
    Cache(CacheCommandArgs),
    Check(CheckArgs),
    Diff(DiffArgs),
    Dump(DumpArgs),
    Gc(GcArgs),
    #[cfg(feature = "snapshotter")]
    Snapshotter(SnapshotterArgs),
    Trace(TraceArgs),
    #[cfg(feature = "measure")]
    Bench(BenchArgs),
    #[cfg(feature = "measure")]
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
    #[cfg(feature = "measure")]
    #[command(name = "__bench", hide = true)]
    BenchChild(BenchChildArgs),
}

/// Adds the arguments of a command to its definition.
type Augment = fn(clap::Command) -> clap::Command;

/// Commands that are parsed without the definitions of all others, which take longer to make than most commands to run.
const ALONE: &[(&str, Augment)] = &[
    ("scan", ScanArgs::augment_args),
    ("info", InfoArgs::augment_args),
    ("ls", LsArgs::augment_args),
    ("map", MapArgs::augment_args),
    ("cat", CatArgs::augment_args),
    ("extract", ExtractArgs::augment_args),
    ("tar", TarArgs::augment_args),
    ("mount", MountArgs::augment_args),
    ("run", RunArgs::augment_args),
    ("umount", UmountArgs::augment_args),
    ("status", StatusArgs::augment_args),
    ("restart", RestartArgs::augment_args),
    ("pack", PackArgs::augment_args),
    ("convert", ConvertArgs::augment_args),
    ("check", CheckArgs::augment_args),
    ("diff", DiffArgs::augment_args),
    ("dump", DumpArgs::augment_args),
    ("__complete", CompleteArgs::augment_args),
    #[cfg(feature = "measure")]
    ("__bench", BenchChildArgs::augment_args),
];

/// Parses the command line of one of these commands. Returns nothing for other commands, and for mistakes and requests
/// for help: the whole definition knows the answer.
pub fn parse_alone(argv: &[OsString]) -> Option<Cli> {
    let main = clap::Command::new("forerun")
        .version(VERSION)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .subcommand_required(true);
    // Options before the command have no values.
    let mut words = argv.iter().skip(1);
    let name = words.find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let name = name.map_or(OsStr::new(""), OsString::as_os_str);
    let main = match ALONE.iter().find(|(known, _)| name == *known) {
        Some((known, augment)) => {
            let command = clap::Command::new(*known).disable_help_flag(true);
            main.subcommand(augment(command))
        }
        // Only its version can be asked for.
        None if name.is_empty() => main,
        None => return None,
    };
    match Global::augment_args(main).try_get_matches_from(argv) {
        Ok(matches) => Cli::from_arg_matches(&matches).ok(),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayVersion => error.exit(),
        Err(_) => None,
    }
}

/// Print the paths in an image with which a command line may go on, one on a line
#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// The command line up to the cursor, without the program; the last word may be empty
    #[arg(value_name = "WORD", allow_hyphen_values = true, last = true)]
    pub words: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_command_alone_has_the_arguments_that_it_has_among_all() {
        let all = Cli::command();
        for (name, augment) in ALONE {
            let among = all.find_subcommand(name).unwrap();
            let alone = augment(clap::Command::new(*name));
            let arguments = |command: &clap::Command| {
                let arguments = command.get_arguments();
                arguments.map(|arg| format!("{arg:?}")).collect::<Vec<_>>()
            };
            assert_eq!(arguments(&alone), arguments(among), "{name}");
        }
    }

    #[test]
    fn command_lines_mean_the_same_with_one_definition_and_with_all() {
        for line in [
            "forerun -q --json ls -lR -h a.img /etc",
            "forerun ls a.img -v -v",
            "forerun mount -f -o ro,uid=1 a.img dir",
            "forerun mount a.img dir -- ls -l --json",
            "forerun run --overlay tmpfs a.img --stats -- sh -c x",
            "forerun pack --format romfs dir out",
            "forerun check --quick a.img",
            #[cfg(feature = "measure")]
            "forerun __bench time -- ls -lR --json dir",
        ] {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let alone = parse_alone(&argv).unwrap();
            let among = crate::help::command().try_get_matches_from(&argv).unwrap();
            let among = Cli::from_arg_matches(&among).unwrap();
            assert_eq!(format!("{alone:?}"), format!("{among:?}"), "{line}");
        }
        for line in [
            "forerun",
            "forerun ls",
            "forerun ls --help a.img",
            "forerun pack -h",
            "forerun lss a.img",
            "forerun demo",
            "forerun help ls",
            "forerun --nosuch",
        ] {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(parse_alone(&argv).is_none(), "{line}");
        }
    }
}
