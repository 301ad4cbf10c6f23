//! Charts, as SVG.
//!
//! plotters draws them: charming, the other candidate, runs a JavaScript engine for an SVG. The colours
//! that plotters writes are exchanged in a style sheet inside the file where the reader's page is dark.

mod log;
mod ratios;

use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::style::RGBColor;

pub use log::{ChartLine, LogChart};
pub use ratios::{RatioChart, RatioPoint};

/// The ink on light ground, and on dark.
const INK: (RGBColor, &str) = (RGBColor(0x22, 0x26, 0x2b), "#dfe3e8");
/// Lines of the grid.
const GRID: (RGBColor, &str) = (RGBColor(0xdf, 0xe2, 0xe6), "#3a4049");
/// Colours of lines and points: distinct on light and on dark ground, and for colour-blind readers.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xb0, 0x8a, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x8a, 0x5f, 0xd0),
    RGBColor(0x80, 0x80, 0x80),
];

type DrawError = Box<dyn Error>;

/// Has a chart drawn for both themes. An error names the chart by its title.
fn to_svg(title: &str, draw: impl FnOnce(&mut String) -> Result<(), DrawError>) -> Result<String> {
    let mut text = String::new();
    draw(&mut text).map_err(|error| anyhow!("{title}: {error}"))?;
    Ok(themed(&text))
}

/// Adds a style sheet that exchanges the colours of ink and grid on dark ground.
fn themed(svg: &str) -> String {
    let mut rules = String::new();
    for (light, dark) in [INK, GRID] {
        let light = format!("#{:02X}{:02X}{:02X}", light.0, light.1, light.2);
        for attribute in ["fill", "stroke"] {
            rules += &format!("[{attribute}=\"{light}\"]{{{attribute}:{dark}}}");
        }
    }
    let style = format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>");
    match svg.find('>') {
        Some(at) => {
            let (head, rest) = svg.split_at(at + 1);
            format!("{head}\n{style}{rest}")
        }
        None => svg.to_string(),
    }
}

/// Formats a number with three digits that count.
pub fn short(number: f64) -> String {
    let with = |number: f64, suffix: &str| match number {
        _ if number >= 99.95 => format!("{number:.0}{suffix}"),
        _ if number >= 9.995 => format!("{number:.1}{suffix}").replace(".0", ""),
        _ => {
            let text = format!("{number:.2}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            format!("{text}{suffix}")
        }
    };
    match number {
        _ if number >= 1e9 => with(number / 1e9, " G"),
        _ if number >= 1e6 => with(number / 1e6, " M"),
        _ if number >= 1e3 => with(number / 1e3, " k"),
        _ => with(number, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let table = [
            (0.0, "0"),
            (0.25, "0.25"),
            (7.0, "7"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1500.0, "1.5 k"),
            (2e6, "2 M"),
            (1e11, "100 G"),
        ];
        for (number, text) in table {
            assert_eq!(short(number), text);
        }
    }
}
