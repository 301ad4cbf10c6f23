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

/// Directories of packages that are no part of the library.
const OF_OTHERS: [&str; 2] = ["site-packages", "dist-packages"];

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
    let name = library.file_name().context("the library has a name")?;
    let copied = lib.join(name);
    fs::create_dir_all(&copied)?;
    // Compiled modules are as good as the times of their sources.
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--dereference"]);
    for entry in fs::read_dir(&library).with_context(|| library.display().to_string())? {
        let entry = entry?;
        let is_of_others = OF_OTHERS.iter().any(|name| entry.file_name() == *name);
        if !is_of_others {
            copy.arg(entry.path());
        }
    }
    process::output(copy.arg(&copied))?;
    // Where a module was never loaded, it is compiled now: not from the mount, each time anew.
    start(dir, &[])?;
    Ok(())
}

/// Runs the interpreter of `dir` with a program of some size. Returns its output.
pub fn start(dir: &Path, options: &[&str]) -> Result<String> {
    let said = run(dir, options, SCRIPT)?;
    ensure!(said.ends_with("modules"), "python3 said {said:?}");
    Ok(said)
}

/// Runs a script in the interpreter of `dir`. Returns its output.
pub fn run(dir: &Path, options: &[&str], script: &str) -> Result<String> {
    let mut command = Command::new(dir.join("bin/python3"));
    command.env_clear().env("PYTHONHOME", dir);
    // Nothing of this machine's.
    command.args(["-s", "-S"]).args(options);
    process::output(command.args(["-c", script]))
}
