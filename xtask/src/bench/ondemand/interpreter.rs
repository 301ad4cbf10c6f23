//! A real program tree: the Python interpreter of this machine with its library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// The script that is started: it loads the modules of a program of some size, and says how many.
const SCRIPT: &str = "\
import argparse, asyncio, csv, decimal, email.mime.text, http.client, json, logging.handlers, sys
import tarfile, unittest.mock, urllib.request, xml.dom.minidom, zipfile
sys.stdout.write('%d modules' % (len(sys.modules) // 10 * 10))";

/// Has an interpreter name its program, its library, and the library's directory.
const QUESTION: &str = "\
import os, sys, sysconfig
print(os.path.realpath(sys.executable))
print(sysconfig.get_path('stdlib'))";

/// Copies interpreter and library to `dir`, as `bin/python3` and `lib/pythonX.Y`.
pub fn copy_to(dir: &Path) -> Result<()> {
    let answer = process::output(Command::new("python3").args(["-c", QUESTION]))
        .context("python3 is what is started")?;
    let mut lines = answer.lines().map(PathBuf::from);
    let program = lines.next().context("python3 did not say where it is")?;
    let library = lines.next().context("python3 did not name its library")?;
    let (bin, lib) = (dir.join("bin"), dir.join("lib"));
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(&lib)?;
    fs::copy(&program, bin.join("python3")).with_context(|| program.display().to_string())?;
    // Compiled modules are as good as the times of their sources.
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--dereference"])
        .arg(&library)
        .arg(&lib);
    process::output(&mut copy)?;
    let name = library.file_name().context("the library has a name")?;
    for of_others in ["site-packages", "dist-packages"] {
        forerun_measure::process::remove(&lib.join(name).join(of_others))?;
    }
    // Where a module was never loaded, it is compiled now: not from the mount, each time anew.
    start(dir, &[])?;
    Ok(())
}

/// Runs the interpreter of `dir`. Returns its output.
pub fn start(dir: &Path, options: &[&str]) -> Result<String> {
    let mut command = Command::new(dir.join("bin/python3"));
    command.env_clear().env("PYTHONHOME", dir);
    // Nothing of this machine's.
    command.args(["-s", "-S"]).args(options);
    let said = process::output(command.args(["-c", SCRIPT]))?;
    ensure!(said.ends_with("modules"), "python3 said {said:?}");
    Ok(said)
}
