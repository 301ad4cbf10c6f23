//! Mounts on one machine, from 1 on: images of a few files, each served by a process of its own.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use super::Lab;
use super::cost::{ForegroundMount, memory_of};
use super::series::{CONSTANT, LINEAR, SLOW, ScalingSeries, float};
use crate::process;

const MOUNTS: &[u64] = &[1, 10, 30, 100];
const LARGE: &[u64] = &[300, 1000];

pub fn measure(lab: &Lab) -> Result<Vec<ScalingSeries>> {
    let (source, image) = (lab.dir.join("source"), lab.dir.join("image"));
    fs::create_dir_all(&source)?;
    for n in 0..10 {
        fs::write(source.join(format!("file{n}")), vec![b'x'; 10_000])?;
    }
    lab.pack(&source, &image, &["--format", "squashfs"])?;
    let of = |what: &str, unit, limit| ScalingSeries::new(what, "mounts", unit, limit);
    let mut mounting = of("mount one more", "s", SLOW);
    let mut memory = of("memory of a server that was read", "MB", CONSTANT);
    let mut status = of("forerun status", "s", LINEAR);
    for count in lab.sizes(MOUNTS, LARGE) {
        let mut mounts = Vec::new();
        let start = Instant::now();
        for n in 0..count {
            let (image, name) = (image.display().to_string(), format!("mounts/{n}"));
            mounts.push(ForegroundMount::new(lab, &image, &name, &[])?);
        }
        mounting.push(count, start.elapsed().as_secs_f64() / float(count));
        for mount in &mounts {
            for n in 0..10 {
                fs::read(mount.dir().join(format!("file{n}")))?;
            }
        }
        let all = mounts.iter().map(|mount| memory_of(mount.pid()));
        let all: f64 = all.sum::<Result<f64>>()?;
        memory.push(count, all / float(count));
        let start = Instant::now();
        process::output(Command::new(&lab.forerun).arg("status"))?;
        status.push(count, start.elapsed().as_secs_f64());
    }
    fs::remove_file(image)?;
    Ok(vec![mounting, memory, status])
}
