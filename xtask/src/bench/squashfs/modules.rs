//! Modules that Python imports from an image: thousands of small files, each looked for under several names.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use forerun_measure::mount::Mount;
use forerun_measure::process;
use forerun_measure::programs::find_program;
use forerun_measure::run::{Run, timed};

use super::drivers;
use super::inputs::{MKSQUASHFS, SquashfsInputs};
use super::rows::{SquashfsContender, SquashfsRow};
use crate::bench::work::drop_all;

const PACKAGES: u32 = 50;
const MODULES: u32 = 100;
/// Most functions of a module; the mean is half of it.
const FUNCTIONS: u32 = 40;

/// Imports all modules below the directory that it is called with, and prints how many they were.
const IMPORT: &str = "\
import importlib, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
packages, modules = map(int, sys.argv[2:])
names = [f'p{package}.m{module}' for package in range(packages) for module in range(modules)]
print(sum(importlib.import_module(name) is not None for name in names))
";

/// The modules, as files and in an image: once with what Python compiled of them, once without.
pub struct Modules {
    tree: PathBuf,
    image: PathBuf,
}

impl Modules {
    /// Makes them for the installed Python, unless they are there.
    pub fn prepare(dir: &Path) -> Result<Self> {
        // What one version has compiled, another does not read.
        let mut version = Command::new("python3");
        version.args(["-c", "import sys; print(sys.implementation.cache_tag)"]);
        let tag = process::output(&mut version)?;
        let tree = dir.join(format!("modules-{}", tag.trim()));
        let image = tree.with_extension("sqsh");
        if !image.exists() {
            eprintln!("making {}", image.display());
            for kind in [SquashfsRow::Import, SquashfsRow::ImportSource] {
                write_sources(&tree.join(directory(kind)))?;
            }
            let mut compile = Command::new("python3");
            compile.args(["-m", "compileall", "-q"]);
            process::output(compile.arg(tree.join(directory(SquashfsRow::Import))))?;
            let part = image.with_extension("part");
            let mut command = Command::new("mksquashfs");
            command.arg(&tree).arg(&part).args(MKSQUASHFS);
            process::output(command.args(["-comp", "gzip"]))?;
            fs::rename(&part, &image)?;
        }
        Ok(Self { tree, image })
    }

    /// Imports all of them.
    pub fn measure(
        &self,
        inputs: &SquashfsInputs,
        row: SquashfsRow,
        contender: SquashfsContender,
    ) -> Result<Run> {
        let mount = match contender {
            SquashfsContender::FilesInMemory => None,
            _ => Some(drivers::mount(contender, &inputs.forerun, &self.image)?),
        };
        drop_all()?;
        let at = mount.as_ref().map_or(self.tree.clone(), Mount::path);
        let at = at.join(directory(row));
        // Python itself is in memory: how it gets there is not measured.
        import(&at, 0)?;
        if mount.is_none() {
            import(&at, MODULES)?;
        }
        let before = mount.as_ref().and_then(Mount::cpu_seconds);
        let (seconds, found) = timed(|| import(&at, MODULES))?;
        let after = mount.as_ref().and_then(Mount::cpu_seconds);
        let finished = mount.map(Mount::finish).transpose()?;
        let (counters, peak) = finished.unwrap_or_default();
        Ok(Run {
            seconds,
            cpu: after.zip(before).map(|(after, before)| after - before),
            counters,
            peak,
            found,
            ..Run::default()
        })
    }
}

/// Has a new process import so many modules of each package.
fn import(at: &Path, modules: u32) -> Result<String> {
    let mut python = Command::new("python3");
    python.args(["-c", IMPORT]).arg(at);
    python.args([PACKAGES.to_string(), modules.to_string()]);
    let found = process::output(&mut python)?.trim().to_string();
    let expected = (PACKAGES * modules).to_string();
    ensure!(found == expected, "imported {found}, not {expected}");
    Ok(found)
}

/// Returns the directory of a row, in the tree and in the image.
const fn directory(row: SquashfsRow) -> &'static str {
    match row {
        SquashfsRow::ImportSource => "source",
        _ => "compiled",
    }
}

fn write_sources(root: &Path) -> Result<()> {
    for package in 0..PACKAGES {
        let dir = root.join(format!("p{package}"));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        fs::write(dir.join("__init__.py"), "")?;
        for module in 0..MODULES {
            let text = source(package, module)?;
            fs::write(dir.join(format!("m{module}.py")), text)?;
        }
    }
    Ok(())
}

/// Returns the text of a module.
fn source(package: u32, module: u32) -> Result<String> {
    let number = package * MODULES + module;
    let mut text = format!("\"\"\"Module {module} of package {package}.\"\"\"\n");
    // Coprime to the count, so that the lengths are spread over each package.
    for function in 0..=number * 17 % FUNCTIONS {
        write!(
            text,
            "\n\ndef total_{number}_{function}(value, most={}):\n    \"\"\"Return a part of value.\"\"\"\n    \
             if value > most:\n        return value * {} + most\n    return [value - n for n in range({})]\n",
            number ^ function,
            function + 2,
            number % 9 + 1
        )?;
    }
    Ok(text)
}

/// Returns why imports by this contender cannot be measured, if they cannot.
pub fn missing(contender: SquashfsContender) -> Option<String> {
    let needed = ["python3", "mksquashfs"].into_iter();
    let absent = needed.into_iter().find(|name| find_program(name).is_none());
    match absent {
        Some(name) => Some(format!("{name} is not installed")),
        None => drivers::missing(contender),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_differ_in_length_and_text() {
        let texts: Vec<String> = (0..MODULES)
            .map(|module| source(1, module).unwrap())
            .collect();
        let lengths = texts.iter().map(String::len);
        let (least, most) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
        assert!(least < 500 && most > 5000, "{least} to {most} bytes");
        let functions = |text: &String| text.matches("def ").count();
        assert!(texts.iter().all(|text| functions(text) > 0));
    }
}
