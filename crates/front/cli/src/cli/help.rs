//! The help of the command line.
//!
//! `-h` and `--help` fit on a screen: they show what most users need. `--help-all` shows every
//! option. An option is shown only by `--help-all` if its definition hides it, or if its heading is
//! not in [`SHORT`]: such headings are about caches, servers, limits, messages, or a single format.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;
use crate::args::LAYERS;

/// Headings of options that the short help shows.
const SHORT: [&str; 5] = [
    "Selection",
    "Compression",
    "Owners, times and attributes",
    "Volume",
    "Repair",
];

/// Returns the definition of the command line with its help options.
pub fn command() -> Command {
    let main = Cli::command();
    let global: Vec<_> = main
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.clone().hide_short_help(true))
        .collect();
    with_help(main.mut_subcommands(|command| shortened(command, &global)))
}

/// Commands that share the arguments for images but refuse layers, so their help omits layers.
const OF_ONE_IMAGE: [&str; 3] = ["label", "map", "salvage"];

/// Hides the less used options of `command` from the short help, and adds `global`.
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

/// Adds the options that print the help. `-h` is one of them, unless the command uses it otherwise.
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

    /// Checks the long help of a command and its subcommands.
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

#[cfg(test)]
mod definitions {
    use std::ffi::OsString;

    use super::*;

    fn check_texts(command: &Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string);
            let values = arg.get_possible_values();
            assert!(help.is_some_and(|help| help.len() > 5), "{arg}");
            let is_closed = values.iter().all(|value| value.get_help().is_none());
            let are_told = values.iter().all(|value| value.get_help().is_some());
            assert!(is_closed || are_told, "{arg}: some values have a text");
        }
        command.get_subcommands().for_each(check_texts);
    }

    #[test]
    fn every_option_has_a_text() {
        let main = command();
        main.get_subcommands()
            .filter(|command| !command.is_hide_set())
            .for_each(check_texts);
    }

    /// Returns the calls of forerun in a line of examples. Three blanks separate a comment.
    fn calls(line: &str) -> Vec<Vec<OsString>> {
        let line = line.trim_start().split("   ").next().unwrap_or_default();
        let parts = line.split(['|', ';', '>', '<', '(', ')']).map(str::trim);
        let calls = parts.filter(|part| part.starts_with("forerun "));
        let words = |call: &str| {
            let words = call.split(' ').filter(|word| !word.is_empty());
            words.map(|word| word.trim_matches('\'').into()).collect()
        };
        calls.map(words).collect()
    }

    fn check_examples(command: &Command) -> usize {
        let texts = [command.get_after_help(), command.get_after_long_help()];
        let texts: Vec<_> = texts.iter().flatten().map(ToString::to_string).collect();
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
        }
        let mut checked = 0;
        for call in texts.iter().flat_map(|text| text.lines()).flat_map(calls) {
            let line = crate::layers::with_image(&call, crate::knows_layers);
            let parsed = super::command().try_get_matches_from(line);
            assert!(parsed.is_ok(), "{call:?}: {:?}", parsed.err());
            checked += 1;
        }
        checked + command.get_subcommands().map(check_examples).sum::<usize>()
    }

    #[test]
    fn the_words_of_examples_are_options() {
        assert!(check_examples(&command()) > 70);
    }
}
