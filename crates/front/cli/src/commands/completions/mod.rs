//! `forerun completions`: shell completions of the command line.
//!
//! The library generates scripts that know commands, options and their values, and leave files to
//! the shell. For bash, zsh and fish, this module adds code that calls `forerun __complete` for
//! paths in an image, because the part of the library that could do so is unstable.

use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::context::Context;
use crate::error::Result;
use crate::exit::Exit;
use crate::mount;
use crate::output::Output;

/// Print shell completions
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun completions bash > ~/.local/share/bash-completion/completions/forerun
  forerun completions zsh  > ~/.zfunc/_forerun       (a directory in $fpath)
  forerun completions fish > ~/.config/fish/completions/forerun.fish")]
pub struct CompletionsArgs {
    /// Shell to print completions for
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

pub fn run(_: &Context, args: &CompletionsArgs, main: Command) -> Result {
    // Generates into memory first, because the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_words(main), "forerun", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        Shell::Bash => {
            let words = mount::option_words().join(" ");
            format!("{script}{}", include_str!("bash.sh")).replace("@OPTION_WORDS@", &words)
        }
        Shell::Zsh => with_paths_in_zsh(&script),
        Shell::Fish => format!("{script}{}", include_str!("fish.fish")),
        _ => script.into_owned(),
    };
    let mut out = Output::stdout()?;
    out.text(script)?;
    out.finish()?;
    Ok(Exit::Ok)
}

/// Adds the completion of paths in an image to a script for zsh: a function, the original words
/// (which the library changes before it is called), and calls of the function where the path of a
/// command is completed.
fn with_paths_in_zsh(script: &str) -> String {
    const BEGIN: &str = "\n_forerun() {\n";
    const WORDS: &str =
        "    local -a forerun_words\n    forerun_words=(\"${(@)words[1,CURRENT]}\")\n";
    let begin = format!("\n{}{}{WORDS}", include_str!("zsh.zsh"), &BEGIN[1..]);
    let script = script.replacen(BEGIN, &begin, 1);
    let completed = |line: &str| {
        let is_path = ["'*::paths -- ", "'::path -- "]
            .iter()
            .any(|start| line.starts_with(start));
        match line.strip_suffix(":_default' \\").filter(|_| is_path) {
            Some(before) => format!("{before}:_forerun_paths' \\\n"),
            None => format!("{line}\n"),
        }
    };
    script.lines().map(completed).collect()
}

/// Adds to the definition of the command line all values that an option accepts. The parser itself
/// leaves some of them to the library, whose errors are more precise.
fn with_words(main: Command) -> Command {
    let formats = || PossibleValuesParser::new(forerun::format_names());
    main.mut_subcommands(|command| {
        command.mut_args(|arg| {
            let is_mount_options = arg.get_help_heading().is_none() && arg.get_id() == "options";
            let takes_any = arg.get_possible_values().is_empty();
            match arg.get_id().as_str() {
                "format" | "from" if takes_any && arg.get_long().is_some() => {
                    arg.value_parser(formats())
                }
                _ if is_mount_options => {
                    arg.value_parser(PossibleValuesParser::new(mount::option_words()))
                }
                _ => arg,
            }
        })
    })
}
