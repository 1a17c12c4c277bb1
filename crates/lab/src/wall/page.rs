//! Owns the page: what a wall has to show, in one HTML file that needs nothing else and is read by day and by night.
//!
//! Each picture comes with its caption, the command that repeats it, and the table of what it shows.

use super::rows::{Row, Rows, Table, pivot};
use crate::bench::failure::Failure;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::fmt::Write as _;

/// Colours that stand out from white and from black.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x2f, 0x7e, 0xc4),
    RGBColor(0xd9, 0x65, 0x2b),
    RGBColor(0x2f, 0x9a, 0x58),
    RGBColor(0xb0, 0x52, 0x9c),
    RGBColor(0xb5, 0x8a, 0x1b),
    RGBColor(0xc4, 0x3c, 0x4e),
    RGBColor(0x2a, 0x9d, 0x9d),
    RGBColor(0x7a, 0x6f, 0xd6),
    RGBColor(0x8a, 0x8a, 0x8a),
    RGBColor(0x9c, 0x6b, 0x4a),
];
/// Of a picture, in the units of its own coordinates; the page scales it.
const SIZE: (u32, u32) = (880, 400);

/// A named line of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// How numbers become a height.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten; what is not above zero is drawn at the bottom.
    Log,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Lines over a numeric axis.
    Lines {
        /// What is to the right.
        x: String,
        /// What is upwards.
        y: String,
        /// How.
        scale: Scale,
        /// A colour for each.
        series: Vec<Series>,
    },
    /// A bar for each name, from the left.
    Bars {
        /// What is to the right.
        x: String,
        /// From top to bottom.
        bars: Vec<(String, f64)>,
    },
}

/// A picture with everything that belongs to it.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Above it.
    pub title: String,
    /// What one sees.
    pub caption: String,
    /// The picture itself.
    pub chart: Chart,
    /// What is shown, number by number.
    pub rows: Vec<Row>,
}

/// The series of one metric over one axis: one for each variant, and for each place on the other axes.
pub fn series(rows: &[&Row], metric: &str, axis: &str) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| row.metric == metric) {
        let Some(x) = row.axis(axis).and_then(|at| at.number()) else { continue };
        let mut name = row.variant.clone();
        for (other, value) in row.axes.iter().filter(|(name, _)| name != axis) {
            let _ = write!(name, ", {other} {value}");
        }
        match all.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.push((x, row.value)),
            None => all.push(Series { name, points: vec![(x, row.value)] }),
        }
    }
    all
}

/// What is to be shown.
#[derive(Clone, Debug)]
pub struct Page {
    /// At the top.
    pub title: String,
    /// What it is about, paragraph by paragraph.
    pub words: Vec<String>,
    /// In their order.
    pub pictures: Vec<Picture>,
}

impl Page {
    /// With a title and nothing else.
    pub fn new(title: &str) -> Self {
        Page { title: title.to_owned(), words: Vec::new(), pictures: Vec::new() }
    }

    /// The whole file. `rows` says where it ran, and what should be known about the run; `command` repeats it.
    pub fn html(&self, rows: &Rows, command: &str) -> Result<String, Failure> {
        let mut out = String::from(HEAD);
        let title = escaped(&self.title);
        let _ = write!(out, "<title>{title}</title>\n{STYLE}</head>\n<body>\n<h1>{title}</h1>\n");
        for words in &self.words {
            let _ = writeln!(out, "<p>{}</p>", escaped(words));
        }
        let others = if rows.has_published() {
            "; what is marked as published, on the machine that is named with it"
        } else {
            ""
        };
        let _ = writeln!(out, "<p class=\"machine\">Measured on {}{}.</p>", escaped(&rows.machine), others);
        for picture in &self.pictures {
            out += &figure(picture, command)?;
        }
        if !rows.remarks.is_empty() {
            out += "<h2>Remarks</h2>\n<ul>\n";
            for remark in &rows.remarks {
                let _ = writeln!(out, "<li>{}</li>", escaped(remark));
            }
            out += "</ul>\n";
        }
        out += "</body>\n</html>\n";
        Ok(out)
    }
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n";

/// Lines and letters of pictures take the colour of the text around them.
const STYLE: &str = "<style>
:root { color-scheme: light dark; --edge: #8885; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; background: Canvas; color: CanvasText; }
figure { margin: 2.5rem 0; }
svg { width: 100%; height: auto; display: block; }
.legend span { display: inline-block; margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 1.4em; height: .35em; margin-right: .4em; vertical-align: middle; }
pre { padding: .5em .8em; border: 1px solid var(--edge); border-radius: .3em; overflow-x: auto; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; margin: .8em 0; }
th, td { border-bottom: 1px solid var(--edge); padding: .15em .7em; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.machine { opacity: .75; }
</style>
";

fn figure(picture: &Picture, command: &str) -> Result<String, Failure> {
    let mut out = format!("<figure>\n<h2>{}</h2>\n", escaped(&picture.title));
    if let Chart::Lines { series, .. } = &picture.chart {
        out += "<div class=\"legend\">";
        for (number, one) in series.iter().enumerate() {
            let RGBColor(r, g, b) = colour(number);
            let name = escaped(&one.name);
            let _ = write!(out, "<span><i style=\"background:rgb({r},{g},{b})\"></i>{name}</span>");
        }
        out += "</div>\n";
    }
    out += &svg(&picture.chart)?;
    let _ = writeln!(out, "<figcaption>{}</figcaption>", escaped(&picture.caption));
    let _ = writeln!(out, "<p>Repeat with</p>\n<pre>{}</pre>", escaped(command));
    for table in pivot(&picture.rows.iter().collect::<Vec<_>>()) {
        out += &html_table(&table);
    }
    out += "</figure>\n";
    Ok(out)
}

fn html_table(table: &Table) -> String {
    let line = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = table.lines.iter().map(|cells| line(cells, "td")).collect();
    format!("<div class=\"table\"><table>\n{}{body}</table></div>\n", line(&table.head, "th"))
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The picture alone.
fn svg(chart: &Chart) -> Result<String, Failure> {
    let mut out = String::new();
    let drawn = match chart {
        Chart::Lines { x, y, scale, series } => lines(&mut out, x, y, *scale, series),
        Chart::Bars { x, bars } => self::bars(&mut out, x, bars),
    };
    drawn.map_err(|error| Failure::Machine(format!("cannot draw a picture: {error}")))?;
    Ok(out.replace("#000000", "currentColor"))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// From the least to the greatest, never empty.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    match least.partial_cmp(&most) {
        Some(std::cmp::Ordering::Less) => (least, most),
        Some(std::cmp::Ordering::Equal) => (least - 0.5, most + 0.5),
        _ => (0.0, 1.0),
    }
}

fn lines(out: &mut String, x: &str, y: &str, scale: Scale, series: &[Series]) -> Drawn {
    let points = || series.iter().flat_map(|one| one.points.iter());
    let (left, right) = range(points().map(|point| point.0));
    let most = points().map(|point| point.1).filter(|y| y.is_finite()).fold(0.0, f64::max);
    match scale {
        Scale::Linear => {
            let top = if most > 0.0 { most * 1.05 } else { 1.0 };
            draw_lines(out, (x, left..right), (y, 0.0..top), 0.0, series)
        }
        Scale::Log => {
            let least = points().map(|point| point.1).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
            let least = if least.is_finite() { least } else { 1.0 };
            // Zero has no place on this axis; its place is the bottom, half a decade below the rest.
            let has_zero = points().any(|point| point.1 <= 0.0);
            let bottom = if has_zero { least / 3.0 } else { least * 0.8 };
            let top = (most * 1.3).max(bottom * 10.0);
            draw_lines(out, (x, left..right), (y, (bottom..top).log_scale()), bottom, series)
        }
    }
}

fn draw_lines<Y>(
    out: &mut String,
    (x, across): (&str, std::ops::Range<f64>),
    (y, upwards): (&str, Y),
    bottom: f64,
    series: &[Series],
) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let area = SVGBackend::with_string(out, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(across, upwards)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (number, one) in series.iter().enumerate() {
        let points = || one.points.iter().filter(|point| point.1.is_finite()).map(|&(x, y)| (x, y.max(bottom)));
        chart.draw_series(LineSeries::new(points(), colour(number).stroke_width(2)))?;
        chart.draw_series(points().map(|at| Circle::new(at, 3, colour(number).filled())))?;
    }
    area.present()?;
    drop(chart);
    Ok(())
}

fn bars(out: &mut String, x: &str, bars: &[(String, f64)]) -> Drawn {
    let most = bars.iter().map(|bar| bar.1).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let right = if most > 0.0 { most * 1.15 } else { 1.0 };
    let rows = bars.len().max(1) as f64;
    let area = SVGBackend::with_string(out, (SIZE.0, 70 + 34 * bars.len().max(1) as u32)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(190)
        .build_cartesian_2d(0.0..right, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .x_desc(x)
        .x_label_formatter(&|value| short(*value))
        .draw()?;
    for (number, (name, value)) in bars.iter().enumerate() {
        let value = if value.is_finite() { *value } else { 0.0 };
        let middle = rows - number as f64 - 0.5;
        let corners = [(0.0, middle - 0.32), (value, middle + 0.32)];
        chart.draw_series(std::iter::once(Rectangle::new(corners, colour(number).filled())))?;
        let (px, py) = chart.backend_coord(&(0.0, middle));
        let at_left = TextStyle::from(("sans-serif", 14)).pos(anchored(HPos::Right)).color(&BLACK);
        area.draw_text(name, &at_left, (px - 8, py))?;
        let (px, py) = chart.backend_coord(&(value, middle));
        let at_right = TextStyle::from(("sans-serif", 14)).pos(anchored(HPos::Left)).color(&BLACK);
        area.draw_text(&super::rows::brief(value), &at_right, (px + 6, py))?;
    }
    area.present()?;
    drop(chart);
    Ok(())
}

use plotters::style::text_anchor::{HPos, Pos, VPos};

fn anchored(side: HPos) -> Pos {
    Pos::new(side, VPos::Center)
}

/// 12 k rather than 12000.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let rounded = (scaled * 1_000.0).round() / 1_000.0;
    format!("{rounded}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(chart: Chart) -> String {
        let mut rows = Rows::new(None);
        rows.remarks.push("nothing <else> ran".into());
        let row = Row::measured("b0", "p50_us", 1_490.0, "us").at("occupancy", 50.0);
        let picture = Picture { title: "The cliff".into(), caption: "p50 & p99".into(), chart, rows: vec![row] };
        let mut page = Page::new("S3");
        page.pictures.push(picture);
        page.html(&rows, "laneway-lab s3").expect("a page")
    }

    fn lines(scale: Scale, points: Vec<(f64, f64)>) -> Chart {
        let series = vec![Series { name: "b0".into(), points }];
        Chart::Lines { x: "occupancy".into(), y: "us".into(), scale, series }
    }

    #[test]
    fn a_page_has_picture_caption_command_and_table_and_needs_no_network() {
        let html = page(lines(Scale::Log, vec![(0.0, 0.0), (50.0, 1_490.0)]));
        for part in ["<svg", "</svg>", "p50 &amp; p99", "<pre>laneway-lab s3</pre>", "<td>1,490</td>", "&lt;else&gt;"] {
            assert!(html.contains(part), "{part}");
        }
        let elsewhere = html.replace("http://www.w3.org/2000/svg", "");
        for fetch in ["http:", "https:", "src=", "url(", "<script"] {
            assert!(!elsewhere.contains(fetch), "{fetch}");
        }
        assert!(!html.contains("#000000") && html.contains("currentColor"), "letters take the colour of the text");
    }

    #[test]
    fn a_picture_of_nothing_or_of_one_point_is_a_picture() {
        for scale in [Scale::Linear, Scale::Log] {
            for points in [vec![], vec![(1.0, 1.0)], vec![(1.0, 0.0)], vec![(1.0, f64::NAN), (2.0, 3.0)]] {
                let html = page(lines(scale, points.clone()));
                assert!(html.contains("</svg>") && !html.contains("NaN"), "{scale:?} {points:?}");
            }
        }
        for bars in [vec![], vec![("b0".to_owned(), 0.0)], vec![("b0".to_owned(), 12.5), ("b1".to_owned(), 1.0)]] {
            assert!(page(Chart::Bars { x: "ns".into(), bars }).contains("</svg>"));
        }
    }

    #[test]
    fn series_are_told_apart_by_variant_and_by_every_other_axis() {
        let rows = [
            Row::counted("b0", "probes", 1.0, "").at("occupancy", 0.0).at("destinations", 1usize),
            Row::counted("b0", "probes", 9.0, "").at("occupancy", 50.0).at("destinations", 1usize),
            Row::counted("b0", "probes", 2.0, "").at("occupancy", 0.0).at("destinations", 64usize),
            Row::counted("b0", "locks", 2.0, "").at("occupancy", 0.0).at("destinations", 64usize),
        ];
        let all = series(&rows.iter().collect::<Vec<_>>(), "probes", "occupancy");
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].name.as_str(), all[0].points.len()), ("b0, destinations 1", 2));
    }
}
