//! The figures of docs/benchmarks.md.
//!
//! `run` makes trees and images, measures them with `forerun bench --json`, measures what that does
//! not cover (packing, changes of exFAT volumes, remote images), and stores everything in one file.
//! `page` writes the tables and charts.

mod exfat;
mod figures;
mod images;
mod inputs;
mod page;
mod programs;
mod servers;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};

use figures::{Figures, Run};
use inputs::Inputs;

/// Measures forerun on inputs that it makes, and writes docs/benchmarks.md.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, and keep the figures in a file; groups that are not measured stay as they are there
    Run {
        /// The program
        #[arg(long, default_value = "target/dist/forerun")]
        program: PathBuf,
        /// Where inputs are kept: a disk with 8 GB to spare, not memory
        #[arg(long, default_value = "/var/tmp/forerun-bench")]
        dir: PathBuf,
        /// Measure only these, separated by commas
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<Group>,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Tiny inputs and one round, to see that all of it works: the figures mean nothing
        #[arg(long)]
        quick: bool,
        /// The file [default: docs/figures/benchmarks.json; with --quick none]
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Write the tables of docs/benchmarks.md, and the charts, from the figures
    Page,
}

/// Rows that are measured together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// SquashFS, EROFS and composefs: read, listed, extracted, packed
    Images,
    /// exFAT volumes that are changed
    Exfat,
    /// Images at servers, and containers
    Servers,
}

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().context("bench/ is in the source tree")?;
    let kept = root.join("docs/figures/benchmarks.json");
    match Args::parse().command {
        Command::Page => page::write(root, &Figures::read(&kept)?),
        Command::Run {
            program,
            dir,
            only,
            rounds,
            quick,
            out,
        } => {
            let out = out.or((!quick).then_some(kept));
            let rounds = if quick { 1 } else { rounds };
            let mut figures = match &out {
                Some(out) if out.exists() => Figures::read(out)?,
                _ => Figures::default(),
            };
            let is_asked = |group| only.is_empty() || only.contains(&group);
            let program = program
                .canonicalize()
                .with_context(|| format!("{}: build it first", program.display()))?;
            let inputs = Inputs::new(root, &program, &dir, quick)?;
            let run = Run::begin(&program, rounds)?;
            let mut rows = Vec::new();
            if is_asked(Group::Images) {
                rows.extend(images::measure(&inputs, rounds)?);
            }
            if is_asked(Group::Exfat) {
                rows.extend(exfat::measure(&inputs, rounds)?);
            }
            if is_asked(Group::Servers) {
                rows.extend(servers::measure(&inputs, rounds)?);
            }
            ensure!(!rows.is_empty(), "nothing was measured");
            figures.add(run, rows);
            print!("{}", page::tables(&figures));
            match out {
                Some(out) => figures.write(&out),
                None => Ok(()),
            }
        }
    }
}
