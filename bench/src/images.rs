//! Local images: the measurements of `forerun bench`, and packing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::figures::Row;
use crate::inputs::Inputs;
use crate::programs::{drop_caches, has, output, remove, timed, turns};

const GROUP: &str = "images";

/// An image: its name, how it is made, and the workloads and contenders of `forerun bench` that become
/// rows.
struct Image {
    name: &'static str,
    /// The name in rows.
    text: &'static str,
    made_by: &'static str,
    rows: &'static [(&'static str, &'static str)],
}

const OURS: &str = "ours.packed";
const OTHERS: &str = "theirs.packed";

const IMAGES: [Image; 8] = [
    Image {
        name: "big-gzip.sqsh",
        text: "SquashFS, gzip",
        made_by: "mksquashfs big {} -comp gzip -no-progress -quiet",
        rows: &[
            ("cat-cold", "kernel"),
            ("cat-cold", "squashfuse_ll"),
            ("random", "kernel"),
            ("random", "squashfuse_ll"),
        ],
    },
    Image {
        name: "big-zstd.sqsh",
        text: "SquashFS, zstd",
        made_by: "mksquashfs big {} -comp zstd -no-progress -quiet",
        rows: &[("cat-cold", "kernel"), ("cat-cold", "squashfuse_ll")],
    },
    Image {
        name: "tree-gzip.sqsh",
        text: "SquashFS, gzip",
        made_by: "mksquashfs tree {} -comp gzip -no-progress -quiet",
        rows: &[
            ("tree", "kernel"),
            ("tree-n", "squashfuse_ll"),
            ("ls", "kernel"),
            ("extract", "unsquashfs"),
        ],
    },
    Image {
        name: "big.erofs",
        text: "EROFS",
        made_by: "mkfs.erofs --quiet {} big",
        rows: &[
            ("cat-cold", "kernel"),
            ("cat-cold", "erofsfuse"),
            ("random", "kernel"),
        ],
    },
    Image {
        name: "tree.erofs",
        text: "EROFS",
        made_by: "mkfs.erofs --quiet {} tree",
        rows: &[("ls", "kernel"), ("tree", "kernel")],
    },
    Image {
        name: "big-lz4hc.erofs",
        text: "EROFS, lz4hc",
        made_by: "mkfs.erofs --quiet -zlz4hc {} big",
        rows: &[("random", "erofsfuse")],
    },
    Image {
        name: "tree-lz4hc.erofs",
        text: "EROFS, lz4hc",
        made_by: "mkfs.erofs --quiet -zlz4hc {} tree",
        rows: &[("extract", "fsck.erofs")],
    },
    Image {
        name: "tree.composefs",
        text: "composefs",
        made_by: "forerun pack -q --format composefs --objects objects tree {}",
        rows: &[("ls", "kernel")],
    },
];

pub fn measure(inputs: &Inputs, rounds: usize) -> Result<Vec<Row>> {
    let program = inputs.program.to_str().context("a name in UTF-8")?;
    let mut rows = Vec::new();
    for image in &IMAGES {
        let made_by = image.made_by.replace("forerun", program);
        let maker: Vec<&str> = made_by.split(' ').collect();
        if !has(&maker[..1]) {
            continue;
        }
        let path = inputs.image(image.name, &maker)?;
        rows.extend(benched(inputs, image, &path, rounds)?);
    }
    let makers: [(&str, [&str; 2], &[&str]); 2] = [
        (
            "SquashFS, gzip",
            ["squashfs", "gzip"],
            &["mksquashfs", "tree", OTHERS, "-no-progress", "-quiet"],
        ),
        (
            "EROFS, lz4hc",
            ["erofs", "lz4hc"],
            &["mkfs.erofs", "--quiet", "-zlz4hc", OTHERS, "tree"],
        ),
    ];
    for (text, options, theirs) in makers {
        if has(&theirs[..1]) {
            rows.extend(packed(inputs, text, options, theirs, rounds)?);
        }
    }
    Ok(rows)
}

fn benched(inputs: &Inputs, image: &Image, path: &Path, rounds: usize) -> Result<Vec<Row>> {
    eprintln!("measuring {}", image.name);
    let list = |of: fn(&(&'static str, &'static str)) -> &'static str| {
        let mut names: Vec<&str> = image.rows.iter().map(of).collect();
        names.dedup();
        names.join(",")
    };
    let mut bench = inputs.forerun(&["bench", "--json", "--rounds", &rounds.to_string()]);
    bench.args(["--only", &list(|row| row.0), "--with", &list(|row| row.1)]);
    bench.arg("--directory").arg(&inputs.dir).arg(path);
    if image.name.ends_with(".composefs") {
        bench.arg("--objects").arg(inputs.dir.join("objects"));
    }
    let report: Value = serde_json::from_str(&output(&mut bench)?)?;
    let seconds = |work: &str, by: &str| -> Option<Vec<f64>> {
        let works = report["works"].as_array()?;
        let work = works.iter().find(|row| row["work"] == work)?;
        let contenders = work["contenders"].as_array()?;
        let contender = contenders.iter().find(|row| row["contender"] == by)?;
        let seconds = contender["seconds"].as_array()?;
        seconds.iter().map(Value::as_f64).collect()
    };
    let mut rows = Vec::new();
    for (work, against) in image.rows {
        let ours = seconds(work, "forerun").with_context(|| format!("no {work}: {report}"))?;
        match seconds(work, against) {
            Some(theirs) => {
                let text = format!("{}: {}", image.text, label(work));
                rows.push(Row::new(GROUP, &text, against, [ours, theirs]));
            }
            None => eprintln!("left out: {work} by {against}: {}", report["missing"]),
        }
    }
    Ok(rows)
}

fn label(work: &str) -> &str {
    match work {
        "cat-cold" => "read a file of 250 MB",
        "random" => "4,000 random reads of 4 KiB, 2 threads",
        "tree" => "read 78,000 files, one process",
        "tree-n" => "read 78,000 files, 4 processes",
        "ls" => "ls -lR of 78,000 files",
        "extract" => "extract 78,000 files",
        other => other,
    }
}

/// Packs the tree with forerun and with another program, and compares time and length.
fn packed(
    inputs: &Inputs,
    text: &str,
    [format, compressor]: [&str; 2],
    theirs: &[&str],
    rounds: usize,
) -> Result<[Row; 2]> {
    let pack = |mut command: Command, out: &str| -> Result<f64> {
        remove(&inputs.dir.join(out))?;
        drop_caches()?;
        timed(command.current_dir(&inputs.dir))
    };
    let words = [
        "pack",
        "-q",
        "--format",
        format,
        "--compressor",
        compressor,
        "tree",
        OURS,
    ];
    let what = format!("{text}: pack 78,000 files");
    let ours = || pack(inputs.forerun(&words), OURS);
    let others = || {
        let mut command = Command::new(theirs[0]);
        command.args(&theirs[1..]);
        pack(command, OTHERS)
    };
    let seconds = turns(&what, rounds, ours, others)?;
    let megabytes = |name: &str| -> Result<Vec<f64>> {
        let bytes = inputs.dir.join(name).metadata()?.len();
        remove(&inputs.dir.join(name))?;
        Ok(vec![f64::from(u32::try_from(bytes / 1000)?) / 1000.0])
    };
    let mut size = Row::new(
        GROUP,
        &format!("{what}: length"),
        theirs[0],
        [megabytes(OURS)?, megabytes(OTHERS)?],
    );
    size.unit = "MB".to_string();
    Ok([Row::new(GROUP, &what, theirs[0], seconds), size])
}
