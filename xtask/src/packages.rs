//! Programs that the tests use and the workspace does not hold: Debian packages, listed in
//! `tools/debian-packages.txt` only, and an object store from crates.io.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use forerun_testkit::require;

use crate::process;

/// The object store that tests start: a version, which crates.io never changes, and the versions and
/// digests of all it depends on in the lock file that it brings along.
const OBJECT_STORE: &[&str] = &["s3s-fs", "--version", "=0.14.1", "--features", "binary"];

/// Installs all of it.
pub fn install(root: &Path) -> Result<()> {
    install_missing(root)?;
    install_object_store(root)
}

/// Builds it into `target/tools`, where that has not been done.
fn install_object_store(root: &Path) -> Result<()> {
    let mut install = process::cargo(root);
    install.args(["install", "--locked", "--debug", "--quiet"]);
    install.args(OBJECT_STORE);
    install.arg("--root").arg(root.join("target/tools"));
    // A debug build takes less than half the time. What is built on the way is thrown away.
    install.env("CARGO_PROFILE_DEV_DEBUG", "0");
    install.env_remove("CARGO_TARGET_DIR");
    process::run(&mut install)
}

/// Installs what is missing, if this is Debian and the user is root. Elsewhere it says what to
/// install; in CI that is an error.
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
        return install_packages(&missing);
    }
    let names = missing.join(" ");
    let advice = match is_debian {
        true => format!("as root: apt-get install --no-install-recommends {names}"),
        false => format!("not Debian: install what these packages hold: {names}"),
    };
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

fn install_packages(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    // A fresh machine may be installing something at its first boot: wait for that.
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    process::run(apt().arg("update"))?;
    process::run(
        apt()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(packages),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_package_a_line() {
        let list = "# head\n\nfuse3   # mounts\n  cpio\n#off\n";
        assert_eq!(parse(list), ["fuse3", "cpio"]);
    }
}
