//! Moves inputs between the stored archives and the directories that libFuzzer works in.
//!
//! `corpora unpack DIR [TARGET...]` writes the stored inputs and the seeds of each target into
//! `DIR/TARGET`. `corpora pack DIR [TARGET...]` makes the archives from these directories. `cargo
//! xtask fuzz` calls both.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::path::Path;

use forerun_fuzzing::{Seeds, TARGETS, Target, find, kept};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [verb, dir, names @ ..] = &args[..] else {
        return Err("usage: corpora unpack|pack DIR [TARGET...]".into());
    };
    let dir = Path::new(dir);
    let targets = match names {
        [] => TARGETS.iter().collect(),
        names => chosen(names)?,
    };
    for target in targets {
        let dir = dir.join(target.name);
        match verb.as_str() {
            "unpack" => unpack(target, &dir)?,
            "pack" => {
                let inputs = read(&dir)?;
                let of = inputs.len();
                let count = kept::write(target, inputs)?;
                println!("{}: {count} of {of} inputs kept", target.name);
            }
            other => return Err(format!("no verb {other}: unpack or pack").into()),
        }
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>, String> {
    let each = names
        .iter()
        .map(|name| find(name).ok_or_else(|| format!("no fuzz target {name}")));
    each.collect()
}

fn unpack(target: &Target, dir: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(dir)?;
    // A new target has no archive yet.
    let kept = if kept::exists(target) {
        kept::read(target)?
    } else {
        Vec::new()
    };
    for (name, bytes) in kept.into_iter().chain(target.seeds()?) {
        fs::write(dir.join(name), bytes)?;
    }
    Ok(())
}

fn read(dir: &Path) -> Result<Seeds, Box<dyn Error>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        inputs.push((name, fs::read(entry.path())?));
    }
    Ok(inputs)
}
