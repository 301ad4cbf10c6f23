//! `forerun help`: equivalent to `--help`.

use clap::Args;

/// Show the help of a command
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun help ls
  forerun help cache gc")]
pub struct HelpArgs {
    /// Command, and its subcommand
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl HelpArgs {
    pub fn command_line(&self) -> Vec<String> {
        let words = self.command.iter().map(String::as_str);
        let line = ["forerun"].into_iter().chain(words).chain(["--help"]);
        line.map(str::to_string).collect()
    }
}
