//! `forerun man`: the man pages, for those who make packages. Hidden: users read them with man(1).

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Write the man pages into a directory, which is made if need be
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where to
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// Runs it.
pub fn run(_: &Context, args: &ManArgs) -> Result {
    let written = std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir));
    written.map_err(|error| Failure::output(&error).of(args.dir.display()))?;
    Ok(Exit::Ok)
}
