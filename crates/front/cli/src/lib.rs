//! The `forerun` command: parses the command line, calls the library, prints.
//!
//! There is one file per command under `commands`; mounting has files beside this one. `cli` lists
//! the commands, and they do not depend on it. Their shared code is in `forerun-console`. Nothing
//! in this crate parses a format or reads image bytes itself.

mod at_server;
mod called_as;
mod cli;
mod commands;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inherited;
#[cfg(feature = "measure")]
mod measure;
mod mount;
mod nearest;
mod objects;
mod run;
mod socket;
mod umount;
mod usage;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{FromArgMatches, Subcommand};
use forerun_compat as compat;
use forerun_console::{
    advice, archive, args, columns, confine, context, error, escape, exit, interrupt, json, layers,
    log, losses, names, output, partition, patience, place, progress, remote, role, secrets, size,
    source, spool, stdin, target, values,
};
#[cfg(feature = "network")]
use forerun_console::{fetch, layer_count};

use args::Global;
use cli::{Cli, Command};
use context::Context;
use exit::Exit;
use role::Role;

#[must_use]
pub fn main() -> ExitCode {
    // Some arguments arrive by an inherited pipe, which must be read before inherited descriptors
    // are marked.
    let argv = secrets::arguments();
    inherited::close_on_exec(mount::is_in_background());
    if let Some(this) = role::of_this_process() {
        match this.role {
            Role::Supervisor => return mount::run_supervisor(),
            Role::RunInit => return run::run_init(&this.words),
            Role::RunCommand => return run::become_command(&this.words),
            Role::MapWriter => return run::run_map_writer(),
            // These roles parse the command line as the user gave it.
            Role::Server | Role::LoneServer | Role::Mounter => {}
        }
    }
    if let Some(program) = compat::program(argv) {
        return ExitCode::from(compat::run(program, argv, &called_as::COMMANDS));
    }
    let call = mount::as_mount_helper(argv, &is_command);
    let umount = mount::as_umount_helper(argv);
    let status = if call.is_some() || umount.is_some() {
        mount::helper_status
    } else {
        Exit::code
    };
    let (context, result) = match (call, umount) {
        (_, Some(call)) => {
            log::init(0, false);
            let context = Context::new(Global::default());
            let result = call.and_then(|args| umount::run(&context, &args));
            (context, result)
        }
        (Some(call), None) => {
            let verbose = call.as_ref().is_ok_and(|(_, verbose)| *verbose);
            log::init(verbose.into(), false);
            secrets::warn();
            let context = Context::new(Global::default());
            let result = call.and_then(|(args, _)| mount::run(&context, &args));
            (context, result)
        }
        (None, None) => {
            let cli = parse(argv);
            let to_file = matches!(&cli.command, Command::Mount(args) if args.log.is_some());
            log::init(cli.global.verbose, to_file);
            secrets::warn();
            let context = Context::new(cli.global);
            let result = cli.command.run(&context);
            (context, result)
        }
    };
    let exit = result.unwrap_or_else(|failure| context.report(&failure));
    let exit = context.finish_remotes(exit);
    context.print_stats();
    ExitCode::from(status(exit))
}

/// Parses the command line. Prints help or usage errors and exits in these cases.
fn parse(argv: &[OsString]) -> Cli {
    let argv = &layers::with_image(argv, knows_layers);
    let matches = cli::without_help().try_get_matches_from(argv);
    // The full definition has the help and the suggestions.
    let matches = matches.or_else(|_| cli::help::command().try_get_matches_from(argv));
    let matches = matches.unwrap_or_else(|error| refuse(&error, argv));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error, argv));
    match &cli.command {
        Command::Help(args) => {
            let line = args.command_line();
            let line: Vec<_> = line.into_iter().map(OsString::from).collect();
            parse(&line)
        }
        _ => cli,
    }
}

/// Prints the requested help or the usage error, and exits.
fn refuse(error: &clap::Error, argv: &[OsString]) -> ! {
    if usage::is_help(error) {
        error.exit();
    }
    let words = argv.iter().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<_> = words.collect();
    let context = Context::new(Global {
        json: words
            .iter()
            .take_while(|word| *word != "--")
            .any(|word| word == "--json"),
        ..Global::default()
    });
    let failure = usage::failure(error, cli::help::command(), &words);
    let exit = context.report(&failure);
    std::process::exit(i32::from(exit.code()))
}

fn is_command(word: &OsStr) -> bool {
    word.to_str().is_some_and(Command::has_subcommand)
}

/// Returns whether a command accepts layers in place of an image.
fn knows_layers(word: &OsStr) -> bool {
    let main = cli::help::command();
    let command = word.to_str().and_then(|name| main.find_subcommand(name));
    let mut options = command.iter().flat_map(|command| command.get_arguments());
    options.any(|option| option.get_id() == args::LAYERS)
}
