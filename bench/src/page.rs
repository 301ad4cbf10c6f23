//! The tables and charts of docs/benchmarks.md.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::{Figures, Row, median};

const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- figures -->\n";
const END: &str = "<!-- end of figures -->\n";
/// Groups in their order, with the titles of their charts.
const GROUPS: [(&str, &str); 3] = [
    ("images", "Local images"),
    ("exfat", "exFAT volumes, against exfat-fuse"),
    ("servers", "Images at servers"),
];
/// Most rows of all tables together.
const MOST: usize = 30;

pub fn write(root: &Path, figures: &Figures) -> Result<()> {
    ensure!(
        figures.rows.len() <= MOST,
        "{} rows are too many for a page",
        figures.rows.len()
    );
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    fs::write(&path, replaced(&text, figures)?)?;
    for (group, title) in GROUPS {
        let rows: Vec<&Row> = figures
            .rows
            .iter()
            .filter(|row| row.group == group)
            .collect();
        let path = root.join(format!("docs/figures/benchmarks-{group}.svg"));
        fs::write(&path, chart(title, &rows)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn replaced(text: &str, figures: &Figures) -> Result<String> {
    let (head, rest) = text.split_once(BEGIN).context("no place for figures")?;
    let (_, tail) = rest.split_once(END).context("no end of the figures")?;
    Ok(format!("{head}{BEGIN}\n{}\n{END}{tail}", tables(figures)))
}

/// Formats all rows, and the runs that measured them.
pub fn tables(figures: &Figures) -> String {
    let mut text = String::new();
    for (group, title) in GROUPS {
        let rows: Vec<&Row> = figures
            .rows
            .iter()
            .filter(|row| row.group == group)
            .collect();
        if rows.is_empty() {
            continue;
        }
        text += &format!("## {title}\n\n![{title}](figures/benchmarks-{group}.svg)\n\n");
        text += "| work | forerun | against | theirs | ratio | rounds | run |\n|---|---|---|---|---|---|---|\n";
        for row in rows {
            let [ratio, low, high] = row.ratio();
            let (unit, noisy) = (&row.unit, if row.is_noisy() { ", noisy" } else { "" });
            // Lengths differ less than times.
            let digits = if row.unit == "MB" { 3 } else { 2 };
            let number = figures.runs.iter().position(|run| run.date == row.run);
            text += &format!(
                "| {} | {:.3} {unit} | {} | {:.3} {unit} | {ratio:.digits$} | {low:.digits$}-{high:.digits$}{noisy} | {} |\n",
                row.work,
                median(&row.ours),
                row.against,
                median(&row.theirs),
                number.map_or_else(|| "?".to_string(), |number| (number + 1).to_string()),
            );
        }
        text.push('\n');
    }
    text += "## Runs\n\n| run | date | rounds | machine | programs |\n|---|---|---|---|---|\n";
    for (number, run) in (1..).zip(&figures.runs) {
        let programs = run.programs.join("; ");
        text += &format!(
            "| {number} | {} | {} | {} | {programs} |\n",
            run.date, run.rounds, run.machine
        );
    }
    text
}

/// Draws ratios with their rounds, one below the other, on a logarithmic axis.
fn chart(title: &str, rows: &[&Row]) -> Result<String> {
    let mut svg = String::new();
    // plotters' errors borrow the text that it draws to.
    draw(title, rows, &mut svg).map_err(|error| anyhow::anyhow!("{title}: {error}"))?;
    Ok(svg)
}

fn draw(title: &str, rows: &[&Row], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let count = u32::try_from(rows.len())?;
    let ratios: Vec<[f64; 3]> = rows.iter().map(|row| row.ratio()).collect();
    // The line of equal times is always shown, and a decade below it, so that the axis has enough
    // labels.
    let low = ratios.iter().fold(0.1, |low, ratio| ratio[1].min(low)) * 0.9;
    let high = ratios.iter().fold(1.0, |high, ratio| ratio[2].max(high)) * 1.1;
    let root = SVGBackend::with_string(svg, (960, 110 + 22 * count)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(430)
        .build_cartesian_2d((low..high).log_scale(), 0.0..f64::from(count))?;
    chart
        .configure_mesh()
        .x_desc("share of their time, on a logarithmic axis: below 1 forerun is faster")
        .x_label_formatter(&|x| format!("{x:.2}"))
        .y_labels(0)
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 13))
        .draw()?;
    let equal = [(1.0, 0.0), (1.0, f64::from(count))].map(|place| chart.backend_coord(&place));
    root.draw(&PathElement::new(equal, BLACK))?;
    let left = chart.plotting_area().get_x_axis_pixel_range().start;
    for (index, (row, ratio)) in (0_u32..).zip(rows.iter().zip(&ratios)) {
        let y = f64::from(count - index) - 0.5;
        let [middle, low, high] = ratio.map(|x| chart.backend_coord(&(x, y)));
        let colour = match ratio[0] {
            _ if row.is_noisy() => RGBColor(128, 128, 128),
            1.0.. => RGBColor(213, 94, 0),
            _ => RGBColor(0, 114, 178),
        };
        root.draw(&PathElement::new([low, high], colour.stroke_width(3)))?;
        root.draw(&Circle::new(middle, 4, colour.filled()))?;
        let style = ("sans-serif", 13).into_text_style(&root);
        let style = style.pos(Pos::new(HPos::Right, VPos::Center));
        let name = format!("{}, {}", row.work, row.against);
        root.draw(&Text::new(name, (left - 8, middle.1), style))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_figures_that_are_kept() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let figures = Figures::read(&root.join("docs/figures/benchmarks.json")).unwrap();
        assert!(figures.rows.len() <= MOST);
        let text = fs::read_to_string(root.join(PAGE)).unwrap();
        assert_eq!(
            replaced(&text, &figures).unwrap(),
            text,
            "write it with `cargo run -- page` in bench/"
        );
        for row in &figures.rows {
            assert!(
                figures.runs.iter().any(|run| run.date == row.run),
                "{}",
                row.work
            );
            assert!(
                GROUPS.iter().any(|(group, _)| *group == row.group),
                "{}",
                row.work
            );
        }
    }

    #[test]
    fn a_chart_has_a_line_and_a_point_for_each_row() {
        let row = Row::new(
            "images",
            "read <it>",
            "kernel",
            [vec![1.0; 3], vec![2.0; 3]],
        );
        let svg = chart("a title", &[&row, &row]).unwrap();
        assert!(
            svg.contains("read &lt;it&gt;, kernel") && svg.contains("a title"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
    }
}
