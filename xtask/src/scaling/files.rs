//! Files from 1 MB on: what a random read costs, in a file of which most is a hole.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use forerun_testkit::rng::Rng;

use super::cost::{self, ForegroundMount};
use super::series::{CONSTANT, LINEAR, ScalingSeries};
use super::{Lab, cost::drop_caches};

const SIZES: &[u64] = &[
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];
const LARGE: &[u64] = &[100_000_000_000];
/// Places with data, spread over the file.
const PLACES: u64 = 128;
/// Bytes at each.
const PIECE: u64 = 4096;
/// Times that the places are read, the mean of which counts.
const ROUNDS: u32 = 10;
/// The formats that hold files of any such length.
const FORMATS: &[(&str, &[&str])] = &[
    ("squashfs", &["--compressor", "gzip"]),
    ("erofs", &["--compressor", "lz4"]),
];

pub fn measure(lab: &Lab) -> Result<Vec<ScalingSeries>> {
    let mut all = Vec::new();
    let source = lab.dir.join("file");
    for (format, options) in FORMATS {
        let of = |what: &str, unit, limit| {
            ScalingSeries::new(format!("{format}: {what}"), "bytes", unit, limit)
        };
        let mut pack = of("pack", "s of CPU", LINEAR);
        let mut first = of("mount and read one place", "s of CPU", LINEAR);
        let mut places = of("read 128 places once more, cold", "s", CONSTANT);
        for size in lab.sizes(SIZES, LARGE) {
            make(&source.join("data"), size)?;
            let image = lab.dir.join("image");
            let mut command = Command::new(&lab.forerun);
            command.args(["pack", "--quiet", "--force", "--format", format]);
            command.args(*options).arg(&source).arg(&image);
            pack.push(size, cost::of(&mut command)?.cpu);
            let mount = ForegroundMount::new(lab, &image.display().to_string(), "mnt", &[])?;
            let file = File::open(mount.dir().join("data"))?;
            read(&file, size, size / 2)?;
            first.push(size, cost::cpu_of(mount.pid())?.max(0.01));
            read_places(&file, size)?;
            let mut seconds = 0.0;
            for _ in 0..ROUNDS {
                drop_caches()?;
                let start = Instant::now();
                read_places(&file, size)?;
                seconds += start.elapsed().as_secs_f64();
            }
            places.push(size, seconds / f64::from(ROUNDS));
            drop((file, mount));
            fs::remove_file(&image)?;
        }
        all.extend([pack, first, places]);
    }
    fs::remove_dir_all(&source)?;
    Ok(all)
}

/// Makes a file of holes, with data at its places.
fn make(path: &Path, len: u64) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = File::create(path)?;
    file.set_len(len)?;
    for n in 0..PLACES {
        let bytes = forerun_testkit::generate::bytes(n, usize::try_from(PIECE)?);
        file.write_all_at(&bytes, (len - PIECE) / (PLACES - 1) * n)?;
    }
    Ok(())
}

/// Reads each place once, in the order of a seeded sequence.
fn read_places(file: &File, len: u64) -> Result<()> {
    let mut places: Vec<u64> = (0..PLACES).collect();
    let mut rng = Rng::new(1);
    for last in (1..places.len()).rev() {
        let other = usize::try_from(rng.below(u64::try_from(last)? + 1))?;
        places.swap(last, other);
    }
    for n in places {
        read(file, len, (len - PIECE) / (PLACES - 1) * n)?;
    }
    Ok(())
}

fn read(file: &File, len: u64, at: u64) -> Result<()> {
    let mut page = vec![0; usize::try_from(PIECE)?];
    file.read_exact_at(&mut page, at.min(len - PIECE))?;
    Ok(())
}
