//! Lines on logarithmic axes.

use anyhow::Result;
use plotters::prelude::*;

use super::{DrawError, GRID, INK, PALETTE, to_svg};

const SIZE: (u32, u32) = (860, 460);

/// A line of a chart. Its coordinates are above 0.
pub struct ChartLine {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A chart of some lines.
pub struct LogChart {
    /// The one thing that it shows.
    pub title: String,
    /// The name of the horizontal axis, and its unit.
    pub x: String,
    /// The name of the vertical axis, and its unit.
    pub y: String,
    /// The lines.
    pub lines: Vec<ChartLine>,
}

impl LogChart {
    /// Draws it.
    ///
    /// # Errors
    /// If there is no point.
    pub fn to_svg(&self) -> Result<String> {
        to_svg(&self.title, |text| self.draw(text))
    }

    fn draw(&self, text: &mut String) -> Result<(), DrawError> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (left, right) = bounds(points().map(|point| point.0)).ok_or("no point")?;
        let (low, high) = bounds(points().map(|point| point.1)).ok_or("no point")?;
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        let ink = |size| ("sans-serif", size).into_font().color(&INK.0);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ink(18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (left..right).log_scale(),
                (low * 0.7..high * 1.4).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&|x| super::short(*x))
            .y_label_formatter(&|y| super::short(*y))
            .label_style(ink(13))
            .axis_style(INK.0)
            .bold_line_style(GRID.0)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (line, colour) in self.lines.iter().zip(PALETTE.iter().cycle()) {
            let drawn = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
            chart
                .draw_series(drawn.point_size(3))?
                .label(&line.name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(ink(12))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

/// Returns the least and the greatest, a little apart where they are equal.
fn bounds(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let least = values.clone().min_by(f64::total_cmp)?;
    let greatest = values.max_by(f64::total_cmp)?;
    Some((least, greatest.max(least * 1.01)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> LogChart {
        LogChart {
            title: "a title <&>".to_string(),
            x: "bytes".to_string(),
            y: "seconds".to_string(),
            lines: vec![ChartLine {
                name: "work".to_string(),
                points,
            }],
        }
    }

    #[test]
    fn a_chart_has_its_words_and_colours_for_both_grounds() {
        let svg = chart(vec![(1.0, 2.0), (1000.0, 4.0)]).to_svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["a title &lt;&amp;&gt;", "bytes", "seconds", "work", "1 k"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        let ink = "#22262B";
        assert!(
            svg.matches(ink).count() > 3,
            "the ink is exchanged as plotters writes it"
        );
        assert!(
            svg.contains("prefers-color-scheme:dark")
                && !svg.contains("http://www.w3.org/1999/xlink")
        );
    }

    #[test]
    fn a_chart_without_points_is_an_error() {
        assert!(chart(Vec::new()).to_svg().is_err());
    }
}
