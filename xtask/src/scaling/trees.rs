//! Trees from a thousand entries on.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::Result;

use super::Lab;
use super::cost;
use super::series::{LINEAR, SLOW, ScalingSeries};

const SIZES: &[u64] = &[1_000, 10_000, 100_000, 1_000_000];
const LARGE: &[u64] = &[5_000_000];
/// Files of a directory.
const IN_DIRECTORY: u64 = 1000;
const FORMATS: &[&str] = &["squashfs", "erofs", "romfs"];

pub fn measure(lab: &Lab) -> Result<Vec<ScalingSeries>> {
    let mut all = Vec::new();
    let (manifest, image) = (lab.dir.join("manifest"), lab.dir.join("image"));
    fs::write(lab.dir.join("contents"), "the contents of each file\n")?;
    for format in FORMATS {
        let of = |what: &str, unit, limit| {
            ScalingSeries::new(format!("{format}: {what}"), "entries", unit, limit)
        };
        let mut pack = of("pack", "s of CPU", LINEAR);
        let mut list = of("ls -lR", "s of CPU", LINEAR);
        let mut memory = of("ls -lR", "MB of memory", SLOW);
        let mut check = of("check", "s of CPU", LINEAR);
        for size in lab.sizes(SIZES, LARGE) {
            fs::write(&manifest, lines(size))?;
            let mut command = Command::new(&lab.forerun);
            command.args([
                "pack",
                "--quiet",
                "--force",
                "--format",
                format,
                "--manifest",
            ]);
            pack.push(size, cost::of(command.arg(&manifest).arg(&image))?.cpu);
            let run = |words: &[&str]| cost::of(Command::new(&lab.forerun).args(words).arg(&image));
            let listed = run(&["ls", "-lR"])?;
            list.push(size, listed.cpu);
            memory.push(size, listed.peak);
            check.push(size, run(&["check", "--quiet"])?.cpu);
            fs::remove_file(&image)?;
        }
        all.extend([pack, list, memory, check]);
    }
    fs::remove_file(manifest)?;
    Ok(all)
}

/// Returns the manifest of a tree of `count` files.
fn lines(count: u64) -> String {
    let mut text = String::new();
    for n in 0..count {
        let dir = n / IN_DIRECTORY;
        let _never_fails = writeln!(text, "d{dir:05}/f{n:08} h 644 0 0 contents");
    }
    text
}
