//! Ratios with error bars, one below the other, on a logarithmic axis.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{DrawError, GRID, INK, PALETTE, to_svg};

const WIDTH: u32 = 960;
/// Height of a line, and of title, axis and margins together.
const LINE: u32 = 22;
const REST: u32 = 110;
/// Room for the names.
const NAMES: u32 = 430;
/// Half the height of the ends of an error bar.
const CAP: i32 = 4;
/// Colours of ratios below 1, above it, and of noisy ones.
const COLOURS: [RGBColor; 3] = [PALETTE[0], PALETTE[1], PALETTE[7]];

/// A ratio with its error bar. All numbers are above 0.
pub struct RatioPoint {
    /// Its name, at the left.
    pub name: String,
    /// The ratio.
    pub median: f64,
    /// The lower end of the error bar.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether it is drawn in grey.
    pub is_noisy: bool,
}

/// A chart of ratios.
pub struct RatioChart {
    /// The one thing that it shows.
    pub title: String,
    /// The meaning of the axis and of the error bars.
    pub axis: String,
    /// The ratios, from the top.
    pub points: Vec<RatioPoint>,
}

impl RatioChart {
    /// Draws it.
    ///
    /// # Errors
    /// If there is no point.
    pub fn to_svg(&self) -> Result<String> {
        to_svg(&self.title, |text| self.draw(text))
    }

    fn draw(&self, text: &mut String) -> Result<(), DrawError> {
        let count = u32::try_from(self.points.len())?;
        if count == 0 {
            return Err("no point".into());
        }
        let ends = || self.points.iter().flat_map(|point| [point.low, point.high]);
        // The line of equal times is always there, and a decade below it, which has labels enough.
        let low = ends().fold(0.1, f64::min) * 0.9;
        let high = ends().fold(1.0, f64::max) * 1.1;
        let root = SVGBackend::with_string(text, (WIDTH, REST + LINE * count)).into_drawing_area();
        let ink = |size| ("sans-serif", size).into_font().color(&INK.0);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ink(18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(NAMES)
            .build_cartesian_2d((low..high).log_scale(), 0.0..f64::from(count))?;
        chart
            .configure_mesh()
            .x_desc(&self.axis)
            .x_labels(12)
            .y_labels(0)
            .x_label_formatter(&|x| super::short(*x))
            .label_style(ink(13))
            .axis_style(INK.0)
            .bold_line_style(GRID.0)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let equal = [(1.0, 0.0), (1.0, f64::from(count))].map(|place| chart.backend_coord(&place));
        root.draw(&PathElement::new(equal, INK.0))?;
        for (index, point) in (0_u32..).zip(&self.points) {
            let y = f64::from(count - index) - 0.5;
            let [low, middle, high] =
                [point.low, point.median, point.high].map(|x| chart.backend_coord(&(x, y)));
            let colour = COLOURS[match point {
                _ if point.is_noisy => 2,
                _ if point.median > 1.0 => 1,
                _ => 0,
            }];
            let cap = |(x, y): (i32, i32)| [(x, y - CAP), (x, y + CAP)];
            for line in [[low, high], cap(low), cap(high)] {
                root.draw(&PathElement::new(line, colour.stroke_width(2)))?;
            }
            root.draw(&Circle::new(middle, 4, colour.filled()))?;
            let style = ink(13).into_text_style(&root);
            let style = style.pos(Pos::new(HPos::Right, VPos::Center));
            let left = chart.plotting_area().get_x_axis_pixel_range().start;
            root.draw(&Text::new(point.name.clone(), (left - 8, middle.1), style))?;
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, [low, median, high]: [f64; 3], is_noisy: bool) -> RatioPoint {
        RatioPoint {
            name: name.to_string(),
            median,
            low,
            high,
            is_noisy,
        }
    }

    #[test]
    fn each_ratio_has_an_error_bar_and_a_colour_and_the_chart_both_themes() {
        let chart = RatioChart {
            title: "a title <&>".to_string(),
            axis: "share of their time".to_string(),
            points: vec![
                point("work, kernel", [0.2, 0.25, 0.3], false),
                point("work, other", [1.2, 1.25, 1.3], false),
                point("random", [0.5, 1.25, 3.0], true),
            ],
        };
        let svg = chart.to_svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in [
            "a title &lt;&amp;&gt;",
            "share of their time",
            "work, kernel",
            "work, other",
            "random",
            "prefers-color-scheme:dark",
        ] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        for colour in ["#0072B2", "#D55E00", "#808080"] {
            let of = svg.lines().filter(|line| line.contains(colour));
            // The bar, its two ends and the point.
            assert_eq!(of.count(), 4, "{colour} in {svg}");
        }
        let circles = svg.lines().filter(|line| line.contains("<circle"));
        assert_eq!(circles.count(), 3);
    }

    #[test]
    fn a_chart_without_ratios_is_an_error() {
        let chart = RatioChart {
            title: String::new(),
            axis: String::new(),
            points: Vec::new(),
        };
        assert!(chart.to_svg().is_err());
    }
}
