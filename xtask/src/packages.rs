//! Programs that the tests use and that are not in the workspace: Debian packages, listed only in
//! `tools/debian-packages.txt`, an object store from crates.io, Python packages, listed in
//! `python/requirements-test.txt`, and the kernel of the guest.
//!
//! Packages are installed on the machine only with the user's consent, and nothing else on it is
//! changed.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use forerun_testkit::{guest, require};

use crate::process;

/// The answer (yes or no) of a user without a terminal, such as CI.
const CONSENT: &str = "FORERUN_INSTALL";

/// The object store that tests start. crates.io never changes a version, and its lock file has the
/// versions and digests of all dependencies.
const OBJECT_STORE: &[&str] = &["s3s-fs", "--version", "=0.14.1", "--features", "binary"];

pub fn install(root: &Path) -> Result<()> {
    install_for_machine(root)?;
    install_for_tree(root)?;
    process::forget_builds_of_tools(root)
}

/// Installs programs into `target/tools`, which changes nothing else on the machine. The guest's
/// kernel is fetched only in CI: it is 100 MB, and few tests use it.
pub fn install_for_tree(root: &Path) -> Result<()> {
    process::install_tool(root, OBJECT_STORE)?;
    install_python_packages(root)?;
    if require::in_ci() {
        install_kernel(root)?;
    }
    Ok(())
}

/// Unpacks the kernel of the guest, unless there is one.
pub fn install_kernel(root: &Path) -> Result<()> {
    if guest::has_kernel() {
        return Ok(());
    }
    process::run(Command::new(root.join("tools/guest-kernel.sh")).arg(guest::kernel_root()))
}

/// Installs the Python packages of the tests into `target/tools/python`, unless that was done
/// before.
fn install_python_packages(root: &Path) -> Result<()> {
    let list = fs::read(root.join("python/requirements-test.txt"))?;
    let dir = root.join("target/tools/python");
    // Written last, because it records what is installed.
    let installed = dir.join("requirements.txt");
    if fs::read(&installed).is_ok_and(|installed| installed == list) {
        return Ok(());
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&dir);
    let mut pip = Command::new(dir.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    pip.args(["--no-deps", "--only-binary=:all:", "--requirement"]);
    pip.arg(root.join("python/requirements-test.txt"));
    let made = process::run(&mut venv).and_then(|()| process::run(&mut pip));
    match made {
        Ok(()) => Ok(fs::write(installed, list)?),
        Err(error) if require::in_ci() => Err(error.context("packages of Python")),
        Err(error) => {
            println!("SKIP: the tests of the Python package are skipped: {error:#}");
            Ok(())
        }
    }
}

/// Asks the user whether to install packages, unless the variable answers.
fn consents(missing: &[&str]) -> Result<bool> {
    if let Some(answer) = std::env::var_os(CONSENT) {
        return parse_answer(&answer.to_string_lossy());
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(false);
    }
    println!("the tests use Debian packages that are not installed:");
    println!("  {}", missing.join(" "));
    print!("install them, and upgrade installed packages where they need that? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn parse_answer(answer: &str) -> Result<bool> {
    match answer {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => bail!("{CONSENT}={other}: the values are yes and no"),
    }
}

/// Installs missing Debian packages, if this is Debian, the user is root and consents. Otherwise
/// prints what to install; in CI that is an error.
pub fn install_for_machine(root: &Path) -> Result<()> {
    let path = root.join("tools/debian-packages.txt");
    let list = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let is_debian = require::find_program("apt-get").is_some();
    let mut missing = parse(&list);
    missing.retain(|name| !is_debian || !is_installed(name));
    if missing.is_empty() {
        println!("all Debian packages of {} are installed", path.display());
        return Ok(());
    }
    if is_debian && rustix::process::geteuid().is_root() && consents(&missing)? {
        return install_packages(&missing);
    }
    let names = missing.join(" ");
    let advice = if is_debian {
        format!(
            "as root: apt-get install --no-install-recommends {names} (with {CONSENT}=yes, `make packages` does)"
        )
    } else {
        format!("not Debian: install what these packages hold: {names}")
    };
    ensure!(!require::in_ci(), "packages are missing; {advice}");
    println!("SKIP: tests that need missing packages will be skipped; {advice}");
    Ok(())
}

fn parse(list: &str) -> Vec<&str> {
    list.lines()
        .filter_map(|line| line.split('#').next()?.split_whitespace().next())
        .collect()
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status}", package])
        .output();
    query.is_ok_and(|output| output.stdout == b"installed")
}

fn install_packages(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    let apt = || {
        let mut apt = Command::new("apt-get");
        // Waits for a fresh machine that is installing something at its first boot.
        apt.args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    process::run(apt().arg("update"))?;
    let mut install = apt();
    install.args(["install", "--yes", "--no-install-recommends"]);
    process::run(install.args(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_package_a_line() {
        let list = "# head\n\nfuse3   # mounts\n  cpio\n#off\n";
        assert_eq!(parse(list), ["fuse3", "cpio"]);
    }

    #[test]
    fn the_answers_are_yes_and_no() {
        assert!(parse_answer("yes").unwrap());
        assert!(!parse_answer("no").unwrap());
        let error = parse_answer("upgrade").unwrap_err().to_string();
        assert_eq!(error, "FORERUN_INSTALL=upgrade: the values are yes and no");
    }
}
