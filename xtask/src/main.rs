//! The project's own tasks: `cargo xtask COMMAND`.
//!
//! CI runs `cargo xtask ci`, so that every developer can run the same. Users get nothing from here.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ci;
mod deny;
mod features;
mod fuzz;
mod packages;
mod process;
mod test_programs;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the forerun source tree.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI checks: packages, format, lints, tidy, features, licences, documentation, tests
    Ci,
    /// All tests, as CI runs them
    Test,
    /// The rules of the source tree that no compiler checks
    Tidy,
    /// The library with some of its features only: no warning, no runtime or TLS where none is needed
    Features,
    /// Licences, sources, duplicates and known vulnerabilities of the dependencies (cargo-deny, installed if missing)
    Deny,
    /// Install the Debian packages that the tests use, where they are missing: asks first, or takes
    /// FORERUN_INSTALL=yes
    Packages,
    /// Unpack the kernel of the guest tests from its Debian package into target/guest; installs nothing
    GuestKernel,
    /// Run the fuzz targets in fuzz/ with cargo-fuzz
    Fuzz(fuzz::FuzzOptions),
}

fn main() -> ExitCode {
    let root = forerun_testkit::workspace_root();
    let outcome = run(&Args::parse().command, root);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, root: &Path) -> anyhow::Result<()> {
    match command {
        Command::Ci => ci::run(root),
        Command::Test => test_programs::run(root),
        Command::Tidy => tidy::run(root),
        Command::Features => features::check(root).and_then(|()| features::check_shared(root)),
        Command::Deny => deny::run(root),
        Command::Packages => packages::install(root),
        Command::GuestKernel => packages::install_kernel(root),
        Command::Fuzz(options) => fuzz::run(root, options),
    }
}
