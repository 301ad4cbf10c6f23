//! `forerun map`: shows what each part of an image contains, and which files take the space.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table, presets};
use forerun_pictures::{ImageMap, Kind, Sums};

use super::picture;
use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::escape;
use crate::exit::Exit;
use crate::layers;
use crate::output::Output;
use crate::size::{counted, human};

/// Show what takes the space in an image: metadata, data, free space, directories
///
/// Reads metadata only. If several files share a block, each counts with its part. "shared" is data
/// that several files use. "other" is mostly padding and, with layers, files that upper layers
/// hide. From a server, map fetches only chunks with metadata, unless --fetch-ahead is given. It
/// fetches container layers without a table of contents or an index as a whole.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun map firmware.img
  forerun map --html map.html firmware.img     a page to zoom and search in
  forerun map --svg map.svg firmware.img       one picture, for a document
  forerun map --json card.img | jq .free")]
pub struct MapArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Write the map to FILE as a self-contained HTML page; - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write the map to FILE as an SVG picture; - for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "html", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
}

pub fn run(context: &Context, args: &MapArgs) -> Result {
    let path = args.html.as_deref().or(args.svg.as_deref());
    layers::refuse(&args.image.layers, "a map")?;
    let mut named = args.image.clone();
    // Readahead would fetch data along with the metadata.
    named.source.remote.fetch_nothing_ahead();
    let prepared = context.prepare(&named)?;
    let target = picture::target(path, args.force, "a picture")?;
    let sandbox = prepared.sandbox();
    context.confine(&match &target {
        Some(target) => target.sandbox(sandbox),
        None => sandbox,
    });
    let image = context.open_prepared(prepared, None)?;
    let name = image_name(&args.image);
    let mut failures = Vec::new();
    let survey = ImageMap::survey(image.reader(), &mut |path, error| {
        // If a tree is damaged throughout, the first errors suffice.
        if failures.len() < MOST_FAILURES {
            failures.push(Failure::from(error).of(&name).at(&path));
        }
    });
    let map = survey.map_err(|error| Failure::from(error).of(&name))?;
    match target {
        Some(target) => {
            let picture = match args.svg {
                Some(_) => map.svg(&name),
                None => map.page(&name),
            };
            picture::write(target, &picture)?;
        }
        None => print(context, &map)?,
    }
    let exit = if failures.is_empty() {
        Exit::Ok
    } else {
        Exit::Partial
    };
    context.report_all(failures);
    Ok(exit)
}

/// Largest number of reported files and directories that cannot be read.
const MOST_FAILURES: usize = 100;

fn print(context: &Context, map: &ImageMap) -> Result<()> {
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&map.json())?;
    } else {
        out.text(text(map))?;
    }
    out.finish()
}

fn text(map: &ImageMap) -> String {
    let mut text = trimmed(&kinds(map));
    let total = map.total();
    text += "\n";
    let mut line = |words: String| {
        text += &words;
        text += "\n";
    };
    line(format!(
        "{} of {}, {} in the image{}",
        counted(total.files, "file", "files"),
        human(total.size),
        human(total.in_image()),
        percent(&total, total.in_image()).map_or(String::new(), |p| format!(" ({p})")),
    ));
    for (bytes, what) in [
        (total.holes, "of holes"),
        (total.shared, "saved because files share equal data"),
        (total.inline, "among metadata"),
        (total.outside, "outside the image"),
    ] {
        if bytes > 0 {
            line(format!("{} {what}", human(bytes)));
        }
    }
    if total.fragmented > 0 {
        line(format!(
            "{} in several pieces",
            counted(total.fragmented, "file", "files")
        ));
    }
    if let Some((runs, longest)) = map.free_runs() {
        let runs = counted(runs, "run", "runs");
        line(format!(
            "free space in {runs}, the longest of {}",
            human(longest)
        ));
    }
    if !map.is_exact() {
        line("the image has too many parts to count them separately: sums are approximate".into());
    }
    if let Some(directories) = directories(map) {
        text += "\n";
        text += &trimmed(&directories);
    }
    let most = map.fragmented();
    if !most.is_empty() {
        text += "\n";
        let mut table = table(&["pieces", "bytes", "file"], &[0, 1]);
        for file in most {
            let path = format!("/{}", escape(&file.path));
            table.add_row([file.runs.to_string(), file.size.to_string(), path]);
        }
        text += &trimmed(&table);
    }
    text
}

fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn trimmed(table: &Table) -> String {
    let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

fn kinds(map: &ImageMap) -> Table {
    let mut table = table(&["part", "bytes", "share"], &[1, 2]);
    let kinds = map.kinds();
    let len = kinds
        .iter()
        .fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    let mut add = |name: &str, bytes: u64| {
        table.add_row([name.to_string(), bytes.to_string(), share(bytes, len)]);
    };
    for (kind, bytes) in kinds {
        if bytes == 0 && kind != Kind::Metadata {
            continue;
        }
        add(kind.name(), bytes);
        if kind == Kind::Metadata {
            for (name, bytes) in map.named() {
                add(&format!("  {name}"), bytes);
            }
        }
    }
    if map.shared() > 0 {
        add("shared", map.shared());
    }
    table
}

/// Returns the table of the root's directories, or `None` if they are empty.
fn directories(map: &ImageMap) -> Option<Table> {
    if map.total().files == 0 {
        return None;
    }
    let header = ["directory", "files", "bytes", "stored", "of them", "pieces"];
    let mut table = table(&header, &[1, 2, 3, 4, 5]);
    let (dirs, rest) = map.directories();
    let mut add = |name: String, sums: &Sums| {
        let numbers = [sums.files, sums.size, sums.stored].map(|n| n.to_string());
        let last = [
            percent(sums, sums.stored).unwrap_or_default(),
            sums.runs.to_string(),
        ];
        table.add_row([name].into_iter().chain(numbers).chain(last));
    };
    for (name, sums) in &dirs {
        add(format!("/{}", escape(name)), sums);
    }
    if rest.files > 0 {
        add("elsewhere".into(), &rest);
    }
    Some(table)
}

/// Formats `bytes` as a share of the files' bytes without holes.
fn percent(sums: &Sums, bytes: u64) -> Option<String> {
    let len = sums.size.saturating_sub(sums.holes);
    (len > 0).then(|| share(bytes, len))
}

/// Formats a share of the whole with one decimal.
fn share(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        for (part, whole, expected) in [
            (0, 0, "0.0 %"),
            (1, 3, "33.3 %"),
            (3, 1, "300.0 %"),
            (u64::MAX, u64::MAX, "100.0 %"),
        ] {
            assert_eq!(share(part, whole), expected);
        }
    }
}
