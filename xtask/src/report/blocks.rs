//! The parts of documents, and the charts, that are made from the figures that are kept.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};

use super::kept::{KeptFigures, KeptRecord, ReportRun};
use super::peers::PeerVersion;
use crate::bench::{Against, BENCHES, Ratio, rows_of};
use crate::chart::{RatioChart, RatioPoint};
use crate::figures::{Block, DIR};

const DOCUMENT: &str = "docs/benchmarks.md";
const README: &str = "README.md";

/// The rows of README: the work, the bench and the row, and the row of the sizes of images where some are made.
const README_ROWS: [(&str, &str, &str, Option<&str>); 8] = [
    (
        "read a SquashFS tree of 78,000 files through a mount",
        "squashfs",
        "tree",
        None,
    ),
    (
        "`cat` of 250 MB in SquashFS, gzip",
        "squashfs",
        "cat-gzip",
        None,
    ),
    ("extract that tree, gzip", "squashfs", "extract-gzip", None),
    ("pack it", "squashfs", "pack", Some("pack-size")),
    ("`ls -lR` of 78,000 files in EROFS", "erofs", "ls", None),
    (
        "pack them into EROFS, lz4hc",
        "erofs",
        "pack",
        Some("pack-size"),
    ),
    ("create 10,000 files on exFAT", "exfat", "create", None),
    (
        "start Python from an image behind a link of 100 MB/s and 20 ms",
        "ondemand",
        "start",
        None,
    ),
];

/// Returns the blocks of all documents; none where the tree has no figures.
pub fn blocks(root: &Path) -> Result<Vec<Block>> {
    let Some(kept) = KeptFigures::of_tree(root)? else {
        return Ok(Vec::new());
    };
    let block = |document, name: &str, text| Block {
        document,
        name: format!("benchmarks {name}"),
        text,
    };
    let mut blocks = vec![
        block(README, "readme", readme(&kept)),
        block(DOCUMENT, "runs", runs(&kept)),
    ];
    blocks.extend(BENCHES.map(|bench| block(DOCUMENT, bench, of_bench(&kept, bench))));
    Ok(blocks)
}

/// Draws the chart of each bench that documents show, and removes those of the others.
pub fn draw_charts(root: &Path, kept: &KeptFigures) -> Result<()> {
    for bench in BENCHES {
        let path = root.join(DIR).join(chart_name(bench));
        match chart(kept, bench) {
            Some(chart) => fs::write(&path, chart.to_svg()?),
            None if path.exists() => fs::remove_file(&path),
            None => Ok(()),
        }
        .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn chart_name(bench: &str) -> String {
    format!("benchmarks-{bench}.svg")
}

/// Returns the comparisons of a bench that documents show.
fn comparisons<'k>(
    kept: &'k KeptFigures,
    bench: &'k str,
) -> impl Iterator<Item = (&'k KeptRecord, &'k Against, &'k Ratio)> {
    // The times of mounts and first listings by themselves are parts of the sum.
    let is_part = |row: &str| row.ends_with("-mount") || row.ends_with("-uncached");
    let records = kept.shown(bench);
    let records = records.filter(move |of| bench != "metadata" || !is_part(&of.record.row));
    records.flat_map(|of| {
        let others = of.record.others.iter();
        others.filter_map(move |against| Some((of, against, against.ratio.as_ref()?)))
    })
}

fn chart(kept: &KeptFigures, bench: &str) -> Option<RatioChart> {
    let points: Vec<RatioPoint> = comparisons(kept, bench)
        .map(|(of, against, ratio)| RatioPoint {
            name: format!("{}: {}", of.record.work, against.theirs.name),
            median: ratio.median,
            low: ratio.low,
            high: ratio.high,
            is_noisy: ratio.noisy.is_some(),
        })
        .collect();
    let all = points.len();
    let less = points.iter().filter(|point| point.high < 1.0).count();
    (all > 0).then(|| RatioChart {
        title: format!("{bench}: forerun takes less in every round of {less} of {all} comparisons"),
        axis: "share of the other's time or size; bars: lowest and highest round; grey: noisy"
            .to_string(),
        points,
    })
}

fn of_bench(kept: &KeptFigures, bench: &str) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "work", "forerun", "against", "theirs", "ratio", "rounds", "noise",
    ]);
    for column in [1, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (of, against, ratio) in comparisons(kept, bench) {
        let number = |value: Option<f64>| {
            let unit = &of.record.unit;
            value.map_or_else(String::new, |value| format!("{value:.3} {unit}"))
        };
        table.add_row([
            of.record.work.clone(),
            number(of.record.ours.median),
            against.theirs.name.clone(),
            number(against.theirs.median),
            figure(ratio.median),
            format!("{}-{}", figure(ratio.low), figure(ratio.high)),
            ratio.noisy.clone().unwrap_or_default(),
        ]);
    }
    let mut text = match table.is_empty() {
        true => String::new(),
        false => format!(
            "![Ratios of the rows of {bench}](figures/{})\n\n{table}\n\n",
            chart_name(bench)
        ),
    };
    text += &unmeasured(kept, bench);
    text
}

/// Returns a sentence with the rows of a bench that no quiet run has measured; nothing where there are none.
fn unmeasured(kept: &KeptFigures, bench: &str) -> String {
    let is_shown = |row: &str| kept.shown(bench).any(|of| of.record.row == row);
    let rows = rows_of(bench);
    if rows.is_empty() {
        return match kept.shown(bench).next() {
            Some(_) => String::new(),
            None => format!(
                "Not measured on a quiet machine yet: `cargo xtask report --update --only {bench}` does."
            ),
        };
    }
    let rows: Vec<String> = rows.into_iter().filter(|row| !is_shown(row)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let named: Vec<String> = rows.iter().map(|row| format!("`{row}`")).collect();
    let only: Vec<String> = rows.iter().map(|row| format!("{bench}/{row}")).collect();
    format!(
        "Not measured on a quiet machine yet: {}. This does it:\n\n```sh\ncargo xtask report --update --only {}\n```",
        named.join(", "),
        only.join(",")
    )
}

/// Formats a ratio; with a third digit close to 1, where sizes of images lie.
fn figure(ratio: f64) -> String {
    match (ratio - 1.0).abs() < 0.02 {
        true => format!("{ratio:.3}"),
        false => format!("{ratio:.2}"),
    }
}

fn readme(kept: &KeptFigures) -> String {
    let find = |bench: &'static str, row: &str| kept.shown(bench).find(|of| of.record.row == row);
    let mut lines = String::new();
    let mut run = None;
    for (what, bench, row, size) in README_ROWS {
        let Some(of) = find(bench, row) else {
            continue;
        };
        run = run.or_else(|| kept.run_of(of));
        let mut cells: Vec<String> = shares(of, "");
        let size = size.and_then(|row| find(bench, row));
        cells.extend(size.into_iter().flat_map(|of| shares(of, "size ")));
        let _infallible = writeln!(lines, "| {what} | {} |", cells.join(", "));
    }
    let Some(run) = run else {
        return String::new();
    };
    format!(
        "{}. Medians of {} rounds; in brackets the lowest and highest round.\n\n\
         | work | forerun takes |\n|---|---|\n{lines}",
        machine(run),
        run.rounds
    )
}

fn shares(of: &KeptRecord, what: &str) -> Vec<String> {
    let others = of.record.others.iter();
    let share = |against: &Against| {
        let ratio = against.ratio.as_ref()?;
        let name = match against.theirs.name.as_str() {
            "kernel" | "kernel, loop" => "the kernel's driver",
            "without a recorded list" => "the start without a recorded list",
            name => name,
        };
        let (low, high) = (figure(ratio.low), figure(ratio.high));
        let noisy = if ratio.noisy.is_some() { "; noisy" } else { "" };
        Some(format!(
            "{what}{} ({low}-{high}{noisy}) of {name}",
            figure(ratio.median)
        ))
    };
    others.filter_map(share).collect()
}

/// Describes date and machine in half a sentence.
fn machine(run: &ReportRun) -> String {
    let text = |name: &str| run.machine[name].as_str().unwrap_or("unknown").to_string();
    let cpus = run.machine["cpus"].as_u64().unwrap_or(0);
    format!(
        "{}: Linux {}, {cpus} CPUs of {}",
        run.date,
        text("kernel"),
        text("cpu")
    )
}

/// Returns the runs that documents show, with the machine and the other programs of each.
fn runs(kept: &KeptFigures) -> String {
    let mut text = String::new();
    for (name, run) in &kept.runs {
        if run.disturbed.is_some() {
            continue;
        }
        let (there, missing): (Vec<_>, Vec<_>) =
            run.peers.iter().partition(|peer| peer.version.is_some());
        let there: Vec<String> = there.into_iter().map(PeerVersion::text).collect();
        let missing: Vec<&str> = missing.iter().map(|peer| peer.program.as_str()).collect();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("; without {}", missing.join(", ")),
        };
        let mitigations = run.machine["mitigations"].as_object();
        let mitigations: Vec<&String> = mitigations
            .into_iter()
            .flatten()
            .map(|(flaw, _)| flaw)
            .collect();
        let caches = run.machine["cpu_caches"].as_array().into_iter().flatten();
        let caches: Vec<&str> = caches.filter_map(serde_json::Value::as_str).collect();
        let _infallible = writeln!(
            text,
            "- {}, {}; {} rounds; caches {}; mitigations: {}. {}{missing}.",
            name.split(' ').next().unwrap_or_default(),
            machine(run),
            run.rounds,
            caches.join(", "),
            match mitigations.is_empty() {
                true => "none".to_string(),
                false => mitigations
                    .into_iter()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(" "),
            },
            there.join("; ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{record, run};
    use super::*;

    fn kept(disturbed: Option<&str>) -> KeptFigures {
        let mut kept = KeptFigures::default();
        let tree = record("squashfs", "tree", &[1.0, 1.0, 1.1], &[4.0, 4.0, 4.0]);
        let mut pack = record("squashfs", "pack", &[1.0, 1.0, 2.0], &[2.0, 2.0, 2.0]);
        pack.others[0].theirs.name = "mksquashfs".to_string();
        let size = record("squashfs", "pack-size", &[100.1], &[100.0]);
        kept.merge("squashfs 1", run("d1", disturbed), vec![tree, pack, size]);
        kept
    }

    #[test]
    fn documents_show_undisturbed_figures_with_rounds_and_noise() {
        let kept = kept(None);
        let text = readme(&kept);
        for line in [
            "d1: Linux 6.18, 2 CPUs of a CPU. Medians of 3 rounds",
            "| read a SquashFS tree of 78,000 files through a mount | 0.25 (0.25-0.28) of the kernel's driver |",
            "| pack it | 0.50 (0.50-1.000; noisy) of mksquashfs, size 1.001 (1.001-1.001; noisy) of the kernel's driver |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let text = of_bench(&kept, "squashfs");
        assert!(text.contains("figures/benchmarks-squashfs.svg"), "{text}");
        assert!(text.contains("the rounds differ by 100 %"), "{text}");
        assert!(runs(&kept).contains("- squashfs, d1: Linux 6.18, 2 CPUs of a CPU; 3 rounds;"));
        let chart = chart(&kept, "squashfs").unwrap();
        assert_eq!(
            chart.title,
            "squashfs: forerun takes less in every round of 1 of 3 comparisons"
        );
        let noisy: Vec<bool> = chart.points.iter().map(|point| point.is_noisy).collect();
        assert_eq!(noisy, [false, true, true]);
        assert!(chart.to_svg().unwrap().contains("work of tree: kernel"));
    }

    #[test]
    fn rows_without_figures_are_named_with_the_command_that_measures_them() {
        let text = of_bench(&kept(None), "squashfs");
        let (_, told) = text
            .split_once("Not measured on a quiet machine yet: ")
            .unwrap();
        assert!(
            told.contains("`cat-zstd`") && !told.contains("`tree`"),
            "{told}"
        );
        assert!(
            told.contains("--only squashfs/cat-gzip,squashfs/cat-zstd,"),
            "{told}"
        );
        let whole = of_bench(&kept(None), "romfs");
        assert!(
            whole.ends_with("`cargo xtask report --update --only romfs` does."),
            "{whole}"
        );
    }

    #[test]
    fn documents_show_nothing_of_a_disturbed_run() {
        let kept = kept(Some("busy"));
        assert_eq!(readme(&kept), "");
        let text = of_bench(&kept, "squashfs");
        assert!(!text.contains('|') && text.contains("`tree`"), "{text}");
        assert_eq!(runs(&kept), "");
        assert!(chart(&kept, "squashfs").is_none());
    }
}
