//! The help of the command line: what `--help` shows of it.
//!
//! `-h` and `--help` fit on a screen: they show the options of the command itself. `--help-all` shows
//! each option. An option belongs to `--help-all` if it has a heading that is not in [`SHORT`]: those
//! are about caches, servers, limits, messages, or one format only.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;
use crate::args::LAYERS;

/// Headings of options that the short help shows.
const SHORT: [&str; 2] = ["Selection", "Repair"];

/// Returns the definition of the command line, with the options of the help.
pub fn command() -> Command {
    let main = Cli::command();
    let global: Vec<_> = main
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.clone().hide_short_help(true))
        .collect();
    with_help(main.mut_subcommands(|command| shortened(command, &global)))
}

/// Commands that share the arguments of an image and take one: they refuse layers, so their help has none.
const OF_ONE_IMAGE: [&str; 2] = ["label", "map"];

/// Moves what does not belong to the short help of `command` to the long one, and adds `global`.
fn shortened(command: Command, global: &[Arg]) -> Command {
    let command = if OF_ONE_IMAGE.contains(&command.get_name()) {
        command.mut_arg(LAYERS, |arg| arg.hide(true))
    } else {
        command
    };
    let command = command
        .mut_args(|arg| match arg.get_help_heading() {
            Some(heading) if !SHORT.contains(&heading) => arg.hide_short_help(true),
            Some(_) | None => arg,
        })
        .args(global)
        .mut_subcommands(|command| shortened(command, global));
    with_help(command)
}

/// Adds the options that print the help. `-h` is one of them, unless the command has another use for it.
fn with_help(command: Command) -> Command {
    let is_taken = command
        .get_arguments()
        .any(|arg| arg.get_short() == Some('h'));
    let help = Arg::new("help")
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help");
    let help = if is_taken { help } else { help.short('h') };
    let all = Arg::new("help_all")
        .long("help-all")
        .action(ArgAction::HelpLong)
        .help("Print help with all options");
    command
        .disable_help_flag(true)
        .next_help_heading(None)
        .args([help, all])
}

#[cfg(all(test, not(feature = "network")))]
mod tests {
    use super::*;

    /// Checks the long help of a command and of those below it.
    fn check(mut command: Command) {
        let help = command.render_long_help().to_string();
        for word in ["://", "at servers", "at a server", "registr"] {
            assert!(!help.contains(word), "{}: {word}", command.get_name());
        }
        command.get_subcommands().cloned().for_each(check);
    }

    #[test]
    fn without_a_network_the_help_offers_no_servers() {
        check(command());
        for name in ["pull", "push", "cache", "index", "snapshotter"] {
            assert!(command().find_subcommand(name).is_none(), "{name}");
        }
    }
}
