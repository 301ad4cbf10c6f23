//! The command line: the program and its commands. The man pages and completions are made from
//! these definitions too, so a doc comment here is documentation for users.

mod complete;
pub mod help;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};

use crate::args::Global;
#[cfg(feature = "snapshotter")]
use crate::args::ImageArgs;
use crate::commands;
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
    deleted::SalvageArgs, diff::DiffArgs, dump::DumpArgs, extract::ExtractArgs, gc::GcArgs,
    help::HelpArgs, info::InfoArgs, label::LabelArgs, ls::LsArgs, man::ManArgs, map::MapArgs,
    mkfs::MkfsArgs, pack::PackArgs, restart::RestartArgs, scan::ScanArgs, status::StatusArgs,
    tar::TarArgs, trace::TraceArgs,
};
use crate::context::Context;
use crate::error::Result;
use crate::exit::Exit;
use crate::mount::{self, MountArgs};
use crate::run::{self, RunArgs};
use crate::umount::{self, UmountArgs};

/// The version, as `--version` prints it after the name.
const VERSION: &str = if cfg!(feature = "network") {
    env!("CARGO_PKG_VERSION")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " lite, without network")
};

const EXAMPLES: &str = "\
Examples:
  forerun ls -lR firmware.img                list everything in it
  forerun cat firmware.img /etc/passwd       one file to standard output
  forerun extract -C out firmware.img        everything to disk
  forerun mount firmware.img /mnt            browse it; then forerun umount /mnt
  forerun pack --format romfs dir new.img    make an image

Exit status: 0 success; 1 error in the image (no such path, damage, a limit);
2 usage; 3 no known image format; 4 source not readable; 5 output not writable;
6 done in part; 7 not mounted; 8 all errors were repaired.";

/// List, read, extract, mount, make and check filesystem images, without root
///
/// The format of an image is detected by its content, not by its name. An image is a file, a block device,
/// or - for standard input.
#[derive(Debug, Parser)]
#[command(name = "forerun", version = VERSION, after_help = EXAMPLES, max_term_width = 80)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Defines the commands: the name, the type of the arguments, and the function to run.
macro_rules! commands {
    ($($(#[$attr:meta])* $name:literal $variant:ident($args:ty) => $run:expr;)*) => {
        // A run has only one command.
        #[allow(clippy::large_enum_variant)]
        #[derive(Debug)]
        pub enum Command {
            $($(#[$attr])* $variant($args),)*
        }

        impl Command {
            pub fn run(&self, context: &Context) -> Result {
                match self {
                    $($(#[$attr])* Self::$variant(args) => {
                        let run: fn(&Context, &$args) -> Result = $run;
                        run(context, args)
                    })*
                }
            }
        }

        impl Subcommand for Command {
            fn augment_subcommands(main: clap::Command) -> clap::Command {
                $($(#[$attr])* let main = main.subcommand(<$args>::augment_args(named($name)));)*
                main
            }

            fn augment_subcommands_for_update(main: clap::Command) -> clap::Command {
                Self::augment_subcommands(main)
            }

            fn has_subcommand(name: &str) -> bool {
                match name {
                    $($(#[$attr])* $name => true,)*
                    _ => false,
                }
            }
        }

        impl FromArgMatches for Command {
            fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
                match matches.subcommand() {
                    $($(#[$attr])* Some(($name, matches)) => {
                        <$args>::from_arg_matches(matches).map(Self::$variant)
                    })*
                    _ => Err(clap::Error::new(ErrorKind::MissingSubcommand)),
                }
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        /// Returns the definition of the command line without its help. The arguments of a command
        /// are defined only when it is parsed: defining those of all commands takes longer than
        /// most commands run.
        pub fn without_help() -> clap::Command {
            let main = clap::Command::new("forerun")
                .version(VERSION)
                .disable_help_flag(true)
                .disable_help_subcommand(true)
                .subcommand_required(true);
            $($(#[$attr])* let main = main.subcommand(
                named($name).disable_help_flag(true).defer(<$args>::augment_args),
            );)*
            Global::augment_args(main)
        }
    };
}

/// Starts the definition of a command.
fn named(name: &'static str) -> clap::Command {
    clap::Command::new(name).hide(name == "man" || name.starts_with("__"))
}

commands! {
    "scan" Scan(ScanArgs) => commands::scan::run;
    "info" Info(InfoArgs) => commands::info::run;
    "label" Label(LabelArgs) => commands::label::run;
    "ls" Ls(LsArgs) => commands::ls::run;
    "map" Map(MapArgs) => commands::map::run;
    "cat" Cat(CatArgs) => commands::cat::run;
    "extract" Extract(ExtractArgs) => commands::extract::run;
    "tar" Tar(TarArgs) => commands::tar::run;
    "mount" Mount(MountArgs) => mount::run;
    "run" Run(RunArgs) => run::run;
    "umount" Umount(UmountArgs) => umount::run;
    "status" Status(StatusArgs) => commands::status::run;
    "restart" Restart(RestartArgs) => commands::restart::run;
    "pack" Pack(PackArgs) => commands::pack::run;
    "convert" Convert(ConvertArgs) => commands::convert::run;
    "mkfs" Mkfs(MkfsArgs) => commands::mkfs::run;
    #[cfg(feature = "network")]
    "push" Push(PushArgs) => commands::push::run;
    #[cfg(feature = "network")]
    "pull" Pull(PullArgs) => commands::pull::run;
    #[cfg(feature = "network")]
    "index" Index(IndexArgs) => commands::index::run;
    #[cfg(feature = "network")]
    "cache" Cache(CacheCommandArgs) => commands::cache::run;
    "check" Check(CheckArgs) => commands::check::run;
    "salvage" Salvage(SalvageArgs) => commands::deleted::run;
    "diff" Diff(DiffArgs) => commands::diff::run;
    "dump" Dump(DumpArgs) => commands::dump::run;
    "gc" Gc(GcArgs) => commands::gc::run;
    #[cfg(feature = "snapshotter")]
    "snapshotter" Snapshotter(SnapshotterArgs) => commands::snapshotter::run;
    "trace" Trace(TraceArgs) => commands::trace::run;
    #[cfg(feature = "measure")]
    "bench" Bench(BenchArgs) => commands::bench::run;
    #[cfg(feature = "measure")]
    "demo" Demo(DemoArgs) => commands::demo::run;
    "completions" Completions(CompletionsArgs) => |context, args| {
        commands::completions::run(context, args, help::command())
    };
    // The command line of `help` is replaced before it is run.
    "help" Help(HelpArgs) => |_, _| Ok(Exit::Ok);
    "man" Man(ManArgs) => |context, args| commands::man::run(context, args, help::command());
    "__complete" Complete(CompleteArgs) => complete::run;
    #[cfg(feature = "snapshotter")]
    "__layers" Layers(ImageArgs) => commands::snapshotter::layers::run;
    #[cfg(feature = "measure")]
    "__bench" BenchChild(BenchChildArgs) => commands::bench::child::run;
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
    use super::*;

    #[test]
    fn command_lines_mean_the_same_without_the_help() {
        for line in [
            "forerun -q --json ls -lR -h a.img /etc",
            "forerun ls a.img -v -v",
            "forerun mount -f -o ro,uid=1 a.img dir",
            "forerun mount a.img dir -- ls -l --json",
            "forerun run --overlay tmpfs a.img --stats -- sh -c x",
            "forerun pack --format romfs dir out",
            "forerun check --quick a.img",
            #[cfg(feature = "network")]
            "forerun cache gc --to 10G -q",
        ] {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let parsed = [without_help(), help::command()].map(|command| {
                let matches = command.try_get_matches_from(&argv).unwrap();
                format!("{:?}", Cli::from_arg_matches(&matches).unwrap())
            });
            assert_eq!(parsed[0], parsed[1], "{line}");
        }
        for line in [
            "forerun",
            "forerun ls",
            "forerun ls --help a.img",
            "forerun pack -h",
            "forerun lss a.img",
            "forerun --nosuch",
        ] {
            let parsed = without_help().try_get_matches_from(line.split(' '));
            assert!(parsed.is_err(), "{line}");
        }
    }
}
