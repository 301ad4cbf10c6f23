//! Draws the map as a static SVG: without scripts, style sheets and external resources.

use std::fmt::Write as _;

use super::layout::Bin;
use super::squares::{Rect, divide};
use super::tree::{Sums, TreeNode};
use super::{ImageMap, Kind};
use crate::page::markup;
use crate::text;

const WIDTH: f64 = 1200.0;
const BAR: Rect = Rect {
    x: 20.0,
    y: 90.0,
    width: WIDTH - 40.0,
    height: 60.0,
};
const MAP: Rect = Rect {
    x: 20.0,
    y: 200.0,
    width: WIDTH - 40.0,
    height: 640.0,
};
const COLUMNS: usize = 580;
const LEVELS: usize = 4;
const LINE: f64 = 14.0;

pub fn draw(map: &ImageMap, title: &str) -> String {
    let is_empty = map.total().size == 0;
    let height = if is_empty {
        210.0
    } else {
        MAP.y + MAP.height + 30.0
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{0}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"20\" y=\"30\" font-size=\"18\">{0}</text>\n",
        markup(&format!("Map of {title}"))
    );
    legend(&mut out, map);
    bar(&mut out, &map.layout.bins);
    let words = if is_empty {
        "No file takes any room"
    } else {
        "Files by length; blue-green: well compressed, red: not at all"
    };
    label(&mut out, 20.0, 190.0, words);
    let mut drawing = Drawing {
        out: &mut out,
        children: children(&map.tree.nodes),
        nodes: &map.tree.nodes,
    };
    drawing.directory(0, MAP, 0);
    out.push_str("</svg>\n");
    out
}

const fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Metadata => "#8250c4",
        Kind::Data => "#1f6fd6",
        Kind::Compressed => "#2c9a6b",
        Kind::Fragments => "#d98a00",
        Kind::Free => "#e4e8eb",
        Kind::Other => "#9aa4ad",
    }
}

fn label(out: &mut String, x: f64, y: f64, words: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
        markup(words)
    );
}

fn rect(out: &mut String, rect: Rect, fill: &str, title: &str) {
    let Rect {
        x,
        y,
        width,
        height,
    } = rect;
    let _ = write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\""
    );
    match title {
        "" => out.push_str("/>\n"),
        title => {
            let title = markup(title);
            let _ = writeln!(
                out,
                " stroke=\"#fff\" stroke-width=\"0.5\"><title>{title}</title></rect>"
            );
        }
    }
}

fn legend(out: &mut String, map: &ImageMap) {
    let mut x = 20.0;
    for (kind, bytes) in map.kinds() {
        let swatch = Rect {
            x,
            y: 58.0,
            width: 12.0,
            height: 12.0,
        };
        rect(out, swatch, colour(kind), "");
        label(
            out,
            x + 17.0,
            69.0,
            &format!("{}: {bytes} bytes", kind.name()),
        );
        x += 195.0;
    }
}

/// Draws the bar: a column for each part of the image, divided by kind.
fn bar(out: &mut String, bins: &[Bin]) {
    if bins.is_empty() {
        return;
    }
    let each = bins.len().div_ceil(COLUMNS);
    let columns = bins.chunks(each);
    let width = BAR.width / float(forerun_io::u64_from(columns.len()));
    for (index, part) in (0_u32..).zip(columns) {
        let sum_of = |n: usize| {
            part.iter()
                .map(|bin| bin.kinds.get(n).map_or(0.0, |&n| float(n)))
                .sum::<f64>()
        };
        let sums: Vec<f64> = (0..Kind::ALL.len()).map(sum_of).collect();
        let all = sums.iter().sum::<f64>().max(1.0);
        let mut y = BAR.y;
        for (kind, sum) in Kind::ALL.into_iter().zip(sums) {
            let height = sum / all * BAR.height;
            if height > 0.0 {
                let x = f64::from(index).mul_add(width, BAR.x);
                let column = Rect {
                    x,
                    y,
                    width: width + 0.2,
                    height,
                };
                rect(out, column, colour(kind), "");
                y += height;
            }
        }
    }
}

/// Returns the indices of each directory's entries, largest first.
fn children(nodes: &[TreeNode]) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        if let Some(list) = children.get_mut(node.parent) {
            list.push(index);
        }
    }
    let size = |index: &usize| nodes.get(*index).map_or(0, |node| node.sums.size);
    for list in &mut children {
        list.sort_by_key(|index| std::cmp::Reverse(size(index)));
    }
    children
}

struct Drawing<'a> {
    out: &'a mut String,
    nodes: &'a [TreeNode],
    children: Vec<Vec<usize>>,
}

impl Drawing<'_> {
    /// Draws a directory's entries, down to `LEVELS`.
    fn directory(&mut self, index: usize, room: Rect, level: usize) {
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        let list = self.children.get(index).cloned().unwrap_or_default();
        let mut weights: Vec<_> = list
            .iter()
            .filter_map(|&child| self.nodes.get(child))
            .map(|child| float(child.sums.size))
            .collect();
        weights.push(float(node.rest.size));
        let rects = divide(room, &weights);
        for (&child, &area) in list.iter().zip(&rects) {
            self.child(child, area, level);
        }
        if let Some(area) = rects.last().filter(|area| area.width * area.height > 16.0) {
            let words = format!(
                "{} smaller files, {} bytes",
                node.rest.files, node.rest.size
            );
            rect(self.out, *area, &ratio_colour(&node.rest), &words);
        }
    }

    fn child(&mut self, index: usize, area: Rect, level: usize) {
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        if area.width * area.height < 16.0 {
            return;
        }
        let name = text::name(&node.name);
        let Sums { size, stored, .. } = node.sums;
        let words = format!("{name}: {size} bytes, {stored} stored");
        rect(self.out, area, &ratio_colour(&node.sums), &words);
        let has_label = area.width > 40.0 && area.height > 2.0 * LINE;
        if has_label {
            // A letter is about seven units wide.
            let room = area.width / 7.0;
            let fits = name.char_indices().map(|(at, _)| at);
            let end = fits
                .zip(1_u32..)
                .find(|(_, n)| f64::from(*n) > room)
                .map(|(at, _)| at);
            let short = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
            label(self.out, area.x + 3.0, area.y + 11.0, short);
        }
        if node.is_dir && level < LEVELS && has_label {
            let inside = Rect {
                x: area.x + 2.0,
                y: area.y + LINE,
                width: area.width - 4.0,
                height: area.height - LINE - 2.0,
            };
            self.directory(index, inside, level + 1);
        }
    }
}

/// Returns a colour from blue-green (compressed to nothing) to red (not compressed).
fn ratio_colour(sums: &Sums) -> String {
    let len = sums.size.saturating_sub(sums.holes);
    if len == 0 {
        return "#c8ced3".into();
    }
    let ratio = (float(sums.stored) / float(len)).min(1.0);
    format!("hsl({:.0},55%,68%)", 160.0 - 150.0 * ratio)
}

/// Converts for drawing, where rounding does not matter.
#[allow(clippy::as_conversions)] // Only digits beyond the sixteenth are lost.
const fn float(n: u64) -> f64 {
    n as f64
}
