//! Usage errors from the parser, reworded like all other failures.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::error::Failure;
use crate::nearest::nearest;

/// Commands that this build omits.
const LEFT_OUT: &[&str] = &[
    #[cfg(not(feature = "network"))]
    "push",
    #[cfg(not(feature = "network"))]
    "pull",
    #[cfg(not(feature = "network"))]
    "index",
    #[cfg(not(feature = "network"))]
    "cache",
    #[cfg(not(feature = "snapshotter"))]
    "snapshotter",
    #[cfg(not(feature = "measure"))]
    "bench",
    #[cfg(not(feature = "measure"))]
    "demo",
];

/// Returns whether the parser only prints requested text, such as the help.
pub fn is_help(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Returns the failure for an error of the parser. `command` is the definition of the command line,
/// `argv` the line.
pub fn failure(error: &Error, command: Command, argv: &[String]) -> Failure {
    let invalid = || strings(error, ContextKind::InvalidArg).join(" ");
    let value = || strings(error, ContextKind::InvalidValue).join(" ");
    let mut current = current(command, argv);
    match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_command(error, &current),
        ErrorKind::UnknownArgument => {
            let given = invalid();
            let hint = suggested(&given, &current).unwrap_or_else(|| usage(&mut current));
            let what = if given.starts_with('-') {
                "unknown option"
            } else {
                "unexpected argument"
            };
            Failure::usage(format!("{what} {given}")).hint(hint)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = strings(error, ContextKind::InvalidArg).join(", ");
            Failure::usage(format!("missing {missing}")).hint(usage(&mut current))
        }
        ErrorKind::InvalidValue if value().is_empty() => {
            Failure::usage(format!("{} needs a value", invalid()))
        }
        ErrorKind::InvalidValue => {
            let known = strings(error, ContextKind::ValidValue).join(", ");
            let failure = Failure::usage(format!("{}: not one of {known}", of_value(error)));
            let close = strings(error, ContextKind::SuggestedValue);
            let hint = close.first().map(|close| format!("did you mean {close}?"));
            failure.maybe_hint(hint.as_deref())
        }
        ErrorKind::ValueValidation => {
            let reason = error.source().map(ToString::to_string);
            Failure::usage(format!(
                "{}: {}",
                of_value(error),
                reason.unwrap_or_default()
            ))
        }
        ErrorKind::ArgumentConflict => {
            let others = strings(error, ContextKind::PriorArg);
            let others: Vec<_> = others.iter().map(|other| name_of(other)).collect();
            let given = invalid();
            let given = name_of(&given);
            let message = match others.as_slice() {
                [other] if *other == given => format!("{given} is given twice"),
                [] => format!("{given} cannot be used with the other options"),
                others => format!("{given} cannot be used with {}", others.join(" or ")),
            };
            Failure::usage(message)
        }
        _ => other(error, &mut current),
    }
}

fn unknown_command(error: &Error, current: &Command) -> Failure {
    let name = strings(error, ContextKind::InvalidSubcommand).join(" ");
    if LEFT_OUT.contains(&name.as_str()) {
        let failure = Failure::usage(format!("this program was built without the command {name}"));
        return failure.hint("the full forerun has it");
    }
    let commands = current.get_subcommands().filter(|it| !it.is_hide_set());
    let hint = match nearest(&name, commands.map(Command::get_name)) {
        Some(close) => format!("did you mean {close}?"),
        None => "forerun --help lists the commands".to_string(),
    };
    Failure::usage(format!("unknown command {name}")).hint(hint)
}

/// Returns the failure for all other errors: the first lines of the parser's text.
fn other(error: &Error, current: &mut Command) -> Failure {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().take_while(|line| !line.is_empty());
    let message = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    Failure::usage(message).hint(usage(current))
}

/// Returns an option with its value, as the user gave them.
fn of_value(error: &Error) -> String {
    let option = strings(error, ContextKind::InvalidArg).join(" ");
    let value = strings(error, ContextKind::InvalidValue).join(" ");
    if option.starts_with('-') {
        format!("{} {value}", name_of(&option))
    } else {
        value
    }
}

/// Returns an option without the name of its value.
fn name_of(argument: &str) -> &str {
    match argument.split_once([' ', '=', '[']) {
        Some((option, _)) if argument.starts_with('-') => option,
        _ => argument,
    }
}

/// Returns the usage line of a command. The parser's own line lists the given options and those
/// with a value from the environment.
fn usage(current: &mut Command) -> String {
    let usage = current.render_usage().to_string();
    let line = usage.lines().next().unwrap_or_default();
    line.replacen("Usage:", "usage:", 1)
}

fn strings(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Returns advice for an unknown option: the one that was probably meant. The parser compares
/// shared letters, which suggests unlikely options.
fn suggested(given: &str, current: &Command) -> Option<String> {
    let word = given.strip_prefix("--")?;
    let options = current.get_arguments().filter(|arg| !arg.is_hide_set());
    let names: Vec<_> = options.filter_map(clap::Arg::get_long).collect();
    let found = nearest(word, names.into_iter())?;
    Some(format!("did you mean --{found}?"))
}

/// Returns the command that the line selects.
fn current(mut command: Command, argv: &[String]) -> Command {
    command.build();
    for word in argv.iter().skip(1) {
        if let Some(next) = command.find_subcommand(word).cloned() {
            command = next;
        }
    }
    command
}
