//! `forerun completions`: completions of the command line, for a shell.

use clap::Args;
use clap_complete::Shell;

use crate::context::Context;
use crate::error::Result;
use crate::exit::Exit;
use crate::help;
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
    clap_complete::generate(args.shell, &mut help::command(), "forerun", &mut script);
    let mut out = Output::stdout()?;
    out.text(script)?;
    out.finish()?;
    Ok(Exit::Ok)
}
