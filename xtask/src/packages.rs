//! Programs that the tests use and the workspace does not hold: Debian packages, listed in
//! `tools/debian-packages.txt` only, an object store from crates.io, packages of Python, listed in
//! `python/requirements-test.txt`, and the kernel of the guest.
//!
//! The machine is the user's: packages are installed only with consent, and none that is installed is
//! upgraded for them.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use forerun_testkit::require;

use crate::{guest, process};

/// The variable by which a user without a terminal, such as CI, consents.
const CONSENT: &str = "FORERUN_INSTALL";

/// The object store that tests start: a version, which crates.io never changes, and the versions and
/// digests of all it depends on in the lock file that it brings along.
const OBJECT_STORE: &[&str] = &["s3s-fs", "--version", "=0.14.1", "--features", "binary"];

/// Installs all of it.
pub fn install(root: &Path) -> Result<()> {
    install_for_machine(root)?;
    install_for_tree(root)?;
    process::forget_builds_of_tools(root)
}

/// Installs Debian packages, with the consent of the user.
pub fn install_for_machine(root: &Path) -> Result<()> {
    install_missing(root)?;
    open_fuse_to_users()
}

/// Installs into `target/tools` what changes nothing on the machine. The guest's kernel is fetched only in CI: it is
/// 100 MB, and only few tests use it.
pub fn install_for_tree(root: &Path) -> Result<()> {
    install_object_store(root)?;
    install_python_packages(root)?;
    match require::in_ci() {
        true => guest::install_kernel(root),
        false => Ok(()),
    }
}

/// Builds it into `target/tools`, where that has not been done.
fn install_object_store(root: &Path) -> Result<()> {
    process::install_tool(root, OBJECT_STORE)
}

/// Installs the packages of Python that its tests use into `target/tools/python`, where that has not been done.
fn install_python_packages(root: &Path) -> Result<()> {
    let list = fs::read(root.join("python/requirements-test.txt"))?;
    let dir = root.join("target/tools/python");
    // Written last: it says what is installed.
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

/// The changes of the machine that the user agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    /// Leave it as it is.
    Nothing,
    /// Install packages, and upgrade none.
    Install,
    /// Change also what is there: upgrade packages that the new ones depend on, and open `/dev/fuse` to
    /// all users. For machines that live as long as a test run.
    Upgrade,
}

impl Consent {
    /// Reads the value of the variable.
    fn parse(value: &str) -> Result<Self> {
        match value {
            "no" => Ok(Self::Nothing),
            "yes" => Ok(Self::Install),
            "upgrade" => Ok(Self::Upgrade),
            other => bail!("{CONSENT}={other}: the values are yes, upgrade and no"),
        }
    }

    /// Takes it from the environment, or asks a user at a terminal.
    fn get(missing: &[&str]) -> Result<Self> {
        if let Some(value) = std::env::var_os(CONSENT) {
            return Self::parse(&value.to_string_lossy());
        }
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Ok(Self::Nothing);
        }
        println!("the tests use Debian packages that are not installed:");
        println!("  {}", missing.join(" "));
        print!("install them? Nothing that is installed is upgraded. [y/N] ");
        std::io::stdout().flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        Ok(match answer.trim() {
            "y" | "Y" | "yes" => Self::Install,
            _ => Self::Nothing,
        })
    }
}

/// Installs what is missing, if this is Debian, the user is root and consents. Elsewhere it says what
/// to install; in CI that is an error.
fn install_missing(root: &Path) -> Result<()> {
    let path = root.join("tools/debian-packages.txt");
    let list = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let wanted = parse(&list);
    let is_debian = require::find_program("apt-get").is_some();
    let missing: Vec<&str> = match is_debian {
        true => wanted
            .into_iter()
            .filter(|name| !is_installed(name))
            .collect(),
        false => wanted,
    };
    if missing.is_empty() {
        println!("all Debian packages of {} are installed", path.display());
        return Ok(());
    }
    if is_debian && rustix::process::geteuid().is_root() {
        let consent = Consent::get(&missing)?;
        if consent != Consent::Nothing {
            return install_packages(&missing, consent);
        }
    }
    let names = missing.join(" ");
    let advice = match is_debian {
        true => format!(
            "as root: apt-get install --no-install-recommends {names} (with {CONSENT}=yes, \
             `make packages` does)"
        ),
        false => format!("not Debian: install what these packages hold: {names}"),
    };
    skip_or_fail(&advice)
}

/// Lets every user open `/dev/fuse`, as udev does: a machine without udev leaves it to root, and tests
/// mount without root. Only where the consent covers what is there already, and only as root.
fn open_fuse_to_users() -> Result<()> {
    let device = Path::new("/dev/fuse");
    let consent = std::env::var_os(CONSENT).map(|value| Consent::parse(&value.to_string_lossy()));
    if consent.transpose()? != Some(Consent::Upgrade) || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Ok(metadata) = device.metadata() else {
        return Ok(()); // The tests tell of a machine without FUSE.
    };
    let mode = metadata.permissions().mode();
    if mode & 0o666 != 0o666 {
        println!("opening {} to all users", device.display());
        fs::set_permissions(device, fs::Permissions::from_mode(mode | 0o666))
            .with_context(|| device.display().to_string())?;
    }
    Ok(())
}

/// Says which tests will be skipped. In CI, where none may be, fails.
fn skip_or_fail(advice: &str) -> Result<()> {
    if require::in_ci() {
        bail!("packages are missing; {advice}");
    }
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

fn install_packages(packages: &[&str], consent: Consent) -> Result<()> {
    process::run(process::apt().arg("update"))?;
    let mut chosen = packages.to_vec();
    if consent != Consent::Upgrade && !upgrades(packages)?.is_empty() {
        chosen.clear();
        for &package in packages {
            let upgraded = upgrades(&[package])?;
            if upgraded.is_empty() {
                chosen.push(package);
                continue;
            }
            skip_or_fail(&format!(
                "{package} is left out: it would upgrade {}; {CONSENT}=upgrade allows that",
                upgraded.join(", ")
            ))?;
        }
    }
    if chosen.is_empty() {
        return Ok(());
    }
    println!("installing {}", chosen.join(" "));
    process::run(process::apt().args(INSTALL).args(&chosen))
}

/// How apt-get installs: what is needed, and nothing more.
const INSTALL: &[&str] = &["install", "--yes", "--no-install-recommends"];

/// Returns the installed packages that would be upgraded if these were installed.
fn upgrades(packages: &[&str]) -> Result<Vec<String>> {
    let mut simulate = process::apt();
    simulate.arg("--simulate").args(INSTALL).args(packages);
    Ok(upgrades_in(&process::output(&mut simulate)?))
}

/// Finds them in what apt-get says that it would do: `Inst NAME [INSTALLED] (NEW ...)`.
fn upgrades_in(simulation: &str) -> Vec<String> {
    let upgraded = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        rest.starts_with('[').then(|| name.to_owned())
    };
    simulation.lines().filter_map(upgraded).collect()
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
    fn upgrades_are_told_from_new_packages() {
        let simulation = "NOTE: This is only a simulation!\n\
                          Inst libapparmor1 [3.0.8-2] (3.0.8-3 Debian:12.9/stable [amd64])\n\
                          Inst cpio (2.13+dfsg-7.1 Debian:12.9/stable [amd64])\n\
                          Conf cpio (2.13+dfsg-7.1 Debian:12.9/stable [amd64])\n";
        assert_eq!(upgrades_in(simulation), ["libapparmor1"]);
    }

    #[test]
    fn consent_has_three_words() {
        assert_eq!(Consent::parse("yes").unwrap(), Consent::Install);
        assert_eq!(Consent::parse("upgrade").unwrap(), Consent::Upgrade);
        assert_eq!(Consent::parse("no").unwrap(), Consent::Nothing);
        let error = Consent::parse("y").unwrap_err().to_string();
        assert_eq!(
            error,
            "FORERUN_INSTALL=y: the values are yes, upgrade and no"
        );
    }
}
