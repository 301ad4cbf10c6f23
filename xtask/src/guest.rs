//! The kernel of the guest that tests boot: taken out of its Debian package into `target/guest`, and
//! installed nowhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use forerun_testkit::{guest, require};

use crate::process;

/// Depends on the newest kernel of the distribution.
const META_PACKAGE: &str = "linux-image-amd64";

/// Fetches and unpacks the newest kernel, where there is none yet. Needs Debian, and no root.
///
/// # Errors
/// The errors of apt-get and dpkg-deb; elsewhere than on Debian, that there is no such package.
pub fn install_kernel(root: &Path) -> Result<()> {
    if guest::has_kernel() {
        return Ok(());
    }
    if require::find_program("apt-get").is_none() {
        bail!("the guest's kernel is taken from the Debian package {META_PACKAGE}: not Debian");
    }
    let place = guest::kernel_root();
    let parent = place.parent().unwrap_or(root);
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let mut work = tempfile::Builder::new();
    let work = work.prefix("guest-kernel-").tempdir_in(parent)?;
    let package = match download(work.path()) {
        // The package lists may be old, or not there yet.
        Err(_) if rustix::process::geteuid().is_root() => {
            process::run(process::apt().arg("update"))?;
            download(work.path())?
        }
        done => done?,
    };
    println!("unpacking {package} into {}", place.display());
    let unpacked = work.path().join("unpacked");
    let mut unpack = Command::new("dpkg-deb");
    process::run(unpack.arg("-x").arg(deb_in(work.path())?).arg(&unpacked))?;
    let version = package.trim_start_matches("linux-image-");
    let depmod = require::find_program("depmod").context("depmod (package kmod)")?;
    process::run(Command::new(depmod).arg("-b").arg(&unpacked).arg(version))?;
    fs::rename(&unpacked, &place).with_context(|| place.display().to_string())
}

/// Downloads the package of the newest kernel into a directory. Returns its name.
fn download(dir: &Path) -> Result<String> {
    let package = newest_package()?;
    // apt's own user cannot write to the directory.
    let mut download = process::apt();
    download.args(["-o", "APT::Sandbox::User=root", "download", &package]);
    process::run(download.current_dir(dir))?;
    Ok(package)
}

/// Returns the name of the package that holds the newest kernel.
fn newest_package() -> Result<String> {
    let mut depends = Command::new("apt-cache");
    depends.args(["depends", META_PACKAGE]);
    let listed = process::output(&mut depends)?;
    dependency(&listed).context("apt-cache names no kernel: apt-get update may be needed")
}

fn dependency(listed: &str) -> Option<String> {
    let named = |line: &str| line.trim().strip_prefix("Depends: ").map(str::to_owned);
    listed.lines().find_map(named)
}

fn deb_in(dir: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|suffix| suffix == "deb") {
            return Ok(path);
        }
    }
    bail!("apt-get download left no package")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dependency_is_the_kernel() {
        let listed = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        let expected = Some("linux-image-6.1.0-56-amd64".to_owned());
        assert_eq!(dependency(listed), expected);
        assert_eq!(dependency("N: Unable to locate package\n"), None);
    }
}
