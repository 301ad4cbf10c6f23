//! `forerun completions`: completions of the command line, for a shell.
//!
//! The scripts know commands, options and their values, and leave files to the shell. Paths in an image
//! are not completed: that part of `clap_complete` is marked unstable.

use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::context::Context;
use crate::error::Result;
use crate::exit::Exit;
use crate::help;
use crate::mount;
use crate::output::Output;

/// Print the completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun completions bash > ~/.local/share/bash-completion/completions/forerun
  forerun completions zsh  > ~/.zfunc/_forerun       (a directory in $fpath)
  forerun completions fish > ~/.config/fish/completions/forerun.fish")]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Runs it.
pub fn run(_: &Context, args: &CompletionsArgs) -> Result {
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "forerun", &mut script);
    if args.shell == Shell::Bash {
        script.extend_from_slice(bash_lists().as_bytes());
    }
    let mut out = Output::stdout()?;
    out.text(script)?;
    out.finish()?;
    Ok(Exit::Ok)
}

/// Returns the definition of the command line with all words that an option takes. The parser itself
/// leaves some of them to the library, whose errors say more.
fn command() -> Command {
    let formats = || PossibleValuesParser::new(forerun::format_names());
    help::command().mut_subcommands(|command| {
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

/// Returns what the script for bash lacks: words of mount options after the first one of a list.
fn bash_lists() -> String {
    let words = mount::option_words().join(" ");
    format!(
        r#"
_forerun_with_lists() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    if [[ "${{COMP_WORDS[1]}}" == mount && ( "${{prev}}" == -o || "${{prev}}" == --options ) && "${{cur}}" != *= ]]; then
        local before=""
        [[ "${{cur}}" == *,* ]] && before="${{cur%,*}},"
        COMPREPLY=( $(compgen -P "${{before}}" -W "{words}" -- "${{cur##*,}}") )
        compopt -o nospace 2> /dev/null
        return 0
    fi
    _forerun "$@"
}}
complete -F _forerun_with_lists -o bashdefault -o default forerun
"#
    )
}
