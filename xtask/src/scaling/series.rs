//! One cost at several sizes.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::fit::exponent;
use crate::chart::short;

/// The exponent that n log n has over the measured sizes, and some room for noise.
pub const LINEAR: f64 = 1.15;
/// The exponent of a cost that does not depend on the size, and some room for noise.
pub const CONSTANT: f64 = 0.25;
/// The exponent of a cost that grows with the logarithm of the size, or its square root at the most.
pub const SLOW: f64 = 0.5;

/// One cost at several sizes.
pub struct ScalingSeries {
    /// The work, and which cost of it.
    pub what: String,
    /// Unit of the sizes.
    pub of: String,
    /// Unit of the cost.
    pub unit: String,
    /// Size and cost.
    pub points: Vec<(f64, f64)>,
    /// The largest exponent that is no defect.
    pub limit: f64,
}

impl ScalingSeries {
    /// Creates a series without points.
    pub fn new(what: impl Into<String>, of: &str, unit: &str, limit: f64) -> Self {
        Self {
            what: what.into(),
            of: of.to_string(),
            unit: unit.to_string(),
            points: Vec::new(),
            limit,
        }
    }

    /// Adds a point.
    pub fn push(&mut self, size: u64, cost: f64) {
        self.points.push((float(size), cost));
    }

    /// Returns the exponent over the larger half of the sizes, where fixed costs count least: the last
    /// three points at the least.
    pub fn exponent(&self) -> Option<f64> {
        let count = self.points.len();
        let from = (count / 2).min(count.saturating_sub(3));
        exponent(self.points.get(from..)?)
    }

    /// Returns whether the cost grows no faster than it may. A cost of 0 does not grow.
    pub fn is_met(&self) -> bool {
        self.exponent()
            .is_none_or(|exponent| exponent <= self.limit)
    }

    /// Converts it for programs.
    pub fn to_json(&self) -> Value {
        let points = self.points.iter();
        json!({
            "what": self.what,
            "size_unit": self.of,
            "cost_unit": self.unit,
            "points": points.map(|(x, y)| json!([x, y])).collect::<Vec<_>>(),
            "exponent": self.exponent(),
            "limit": self.limit,
            "met": self.is_met(),
        })
    }

    /// Reads what [`to_json`](Self::to_json) made.
    pub fn from_json(value: &Value) -> Result<Self> {
        let text = |name| value[name].as_str().context("a series lacks a word");
        let points = value["points"]
            .as_array()
            .context("a series lacks points")?;
        let point = |pair: &Value| Some((pair[0].as_f64()?, pair[1].as_f64()?));
        let points: Option<Vec<_>> = points.iter().map(point).collect();
        Ok(Self {
            what: text("what")?.to_string(),
            of: text("size_unit")?.to_string(),
            unit: text("cost_unit")?.to_string(),
            points: points.context("a point is no pair of numbers")?,
            limit: value["limit"]
                .as_f64()
                .context("a series lacks its limit")?,
        })
    }
}

/// Formats the series of a part, one a row.
pub fn table(all: &[ScalingSeries]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let mut header = vec!["cost".to_string()];
    let sizes = all.first().map(|series| series.points.as_slice());
    let unit = all.first().map_or("", |series| series.of.as_str());
    header.extend(
        sizes
            .into_iter()
            .flatten()
            .map(|(x, _)| format!("{} {unit}", short(*x))),
    );
    header.extend(["exponent", "at most", "verdict"].map(String::from));
    table.set_header(header);
    for series in all {
        let mut row = vec![format!("{}, {}", series.what, series.unit)];
        row.extend(series.points.iter().map(|(_, y)| short(*y)));
        let exponent = series.exponent();
        row.push(exponent.map_or_else(String::new, |exponent| {
            format!("{exponent:.2}").replace("-0.00", "0.00")
        }));
        row.push(format!("{:.2}", series.limit));
        row.push(if series.is_met() { "met" } else { "MISSED" }.to_string());
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Converts for fits and charts.
#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Three digits are shown.
pub fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_larger_sizes_count() {
        let mut series = ScalingSeries::new("x", "entries", "s", LINEAR);
        // A fixed cost hides the growth of small sizes.
        for (size, cost) in [
            (1, 100.0),
            (10, 100.0),
            (1000, 1.0),
            (2000, 4.0),
            (4000, 16.0),
        ] {
            series.push(size, cost);
        }
        assert!((series.exponent().unwrap() - 2.0).abs() < 1e-9);
        assert!(!series.is_met());
        let again = ScalingSeries::from_json(&series.to_json()).unwrap();
        assert_eq!(again.to_json(), series.to_json());
        assert!(table(&[again]).contains("MISSED"));
    }
}
