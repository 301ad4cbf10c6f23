//! The Debian packages that the tests use, listed in `tools/debian-packages.txt` only.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use forerun_testkit::require;

use crate::process;

/// Installs what is missing, if this is Debian and the user is root. Elsewhere it says what to
/// install; in CI that is an error.
pub fn install_missing(root: &Path) -> Result<()> {
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
        return install(&missing);
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

fn install(packages: &[&str]) -> Result<()> {
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
