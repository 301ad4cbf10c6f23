//! Licences, sources, duplicates and known vulnerabilities of the dependencies, by cargo-deny and
//! `deny.toml`.
//!
//! The database of vulnerabilities is on a separate server. If it cannot be reached, the check says
//! so and continues, because a failure would have no cause in the tree.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use forerun_testkit::require;

use crate::process;

/// The version of cargo-deny for which `deny.toml` is written.
const VERSION: &str = "~0.20";

/// Runs cargo-deny on the workspaces. Installs it under `target/tools` if it is not in the `PATH`.
pub fn run(root: &Path) -> Result<()> {
    let program = find_or_install(root)?;
    process::forget_builds_of_tools(root)?;
    let Some(program) = program else {
        return Ok(());
    };
    let has_database = fetch_database(root, &program)?;
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let mut command = Command::new(&program);
        command.current_dir(root);
        command.args(["--manifest-path", manifest, "--config", "deny.toml"]);
        command.args([
            "--workspace",
            "--all-features",
            "check",
            "--hide-inclusion-graph",
        ]);
        command.args(["licenses", "bans", "sources"]);
        if has_database {
            command.arg("advisories");
        }
        process::run(&mut command)?;
    }
    Ok(())
}

/// Updates the database of known vulnerabilities. Returns whether there is one.
fn fetch_database(root: &Path, program: &Path) -> Result<bool> {
    let mut fetch = Command::new(program);
    fetch.current_dir(root).args(["fetch", "db"]);
    let output = fetch.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().rfind(|line| !line.trim().is_empty());
    println!(
        "known vulnerabilities are not checked, as their database is not to be had: {}",
        why.unwrap_or("cargo-deny did not say why")
    );
    Ok(false)
}

fn find_or_install(root: &Path) -> Result<Option<PathBuf>> {
    if let Some(program) = require::find_program("cargo-deny") {
        return Ok(Some(program));
    }
    let tools = root.join("target/tools");
    let program = tools.join("bin/cargo-deny");
    if program.exists() {
        return Ok(Some(program));
    }
    println!("installing cargo-deny, once, into {}", tools.display());
    match process::install_tool(root, &["cargo-deny", "--version", VERSION]) {
        Ok(()) => Ok(Some(program)),
        Err(error) if require::in_ci() => bail!("licences cannot be checked: {error:#}"),
        Err(error) => {
            println!("SKIP: licences are not checked, as cargo-deny is missing: {error:#}");
            Ok(None)
        }
    }
}
