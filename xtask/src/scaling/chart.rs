//! Charts of series: each cost divided by its first, so that all share an axis.

use anyhow::Result;

use super::series::ScalingSeries;
use crate::chart::{ChartLine, LogChart};

/// Draws series of the same sizes.
pub fn draw(all: &[&ScalingSeries]) -> Result<String> {
    let lines = all.iter().filter_map(|series| {
        let first = series.points.first().map(|point| point.1)?;
        let points = series.points.iter().map(|(x, y)| (*x, *y / first));
        let points: Vec<_> = points.filter(|(_, y)| *y > 0.0 && y.is_finite()).collect();
        let exponent = series.exponent();
        let exponent = exponent.map_or_else(String::new, |e| format!(" (exponent {e:.2})"));
        (points.len() > 1).then(|| ChartLine {
            name: format!("{}, {}{exponent}", series.what, series.unit),
            points,
        })
    });
    let of = all.first().map_or("", |series| series.of.as_str());
    let chart = LogChart {
        title: format!("Growth of cost with {of}"),
        x: of.to_string(),
        y: "times the cost of the smallest".to_string(),
        lines: lines.collect(),
    };
    chart.to_svg()
}
