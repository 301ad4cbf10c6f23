//! The figures that docs/scaling.md shows: kept as JSON, with a chart for each group of series.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::chart;
use super::series::{ScalingSeries, table};
use crate::figures::{Block, DIR, write_blocks};

/// The file below [`DIR`].
const FILE: &str = "scaling.json";
const DOCUMENT: &str = "docs/scaling.md";

/// Keeps the series of a part in place of the ones before, and writes the charts and tables anew.
pub fn keep(root: &Path, part: &str, host: &Value, all: &[ScalingSeries]) -> Result<()> {
    let mut parts = read(root)?;
    let series: Vec<Value> = all.iter().map(ScalingSeries::to_json).collect();
    parts.insert(part.to_string(), json!({ "host": host, "series": series }));
    let dir = root.join(DIR);
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    fs::write(dir.join(FILE), serde_json::to_string_pretty(&parts)? + "\n")?;
    for (part, value) in &parts {
        for (name, group) in groups(part, &series_of(value)?) {
            let path = dir.join(format!("{name}.svg"));
            fs::write(&path, chart::draw(&group)?).with_context(|| path.display().to_string())?;
        }
    }
    write_blocks(root, &blocks(root)?)
}

fn series_of(part: &Value) -> Result<Vec<ScalingSeries>> {
    let series = part["series"].as_array();
    let series = series.context("a part lacks its series")?;
    series.iter().map(ScalingSeries::from_json).collect()
}

/// Returns the tables of the document, from the figures that are kept.
pub fn blocks(root: &Path) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for (part, value) in read(root)? {
        blocks.push(Block {
            document: DOCUMENT,
            name: format!("scaling {part}"),
            text: table(&series_of(&value)?),
        });
    }
    Ok(blocks)
}

fn read(root: &Path) -> Result<Map<String, Value>> {
    let path = root.join(DIR).join(FILE);
    if !path.exists() {
        return Ok(Map::new());
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Returns the series by what stands before the colon of their names, the format, each group with the
/// name of its chart.
fn groups<'a>(part: &str, all: &'a [ScalingSeries]) -> BTreeMap<String, Vec<&'a ScalingSeries>> {
    let mut groups: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for series in all {
        let name = match series.what.split_once(": ") {
            Some((format, _)) => format!("scaling-{part}-{format}"),
            None => format!("scaling-{part}"),
        };
        groups.entry(name).or_default().push(series);
    }
    groups
}
