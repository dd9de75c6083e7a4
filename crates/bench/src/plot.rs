//! Draws the rows of a figure as SVG: one plot per panel, one series per system, whiskers from the worst run to the best.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Result;
use crate::figure::{Row, Shape, median};

/// Width of a plot, in pixels.
const WIDTH: u32 = 760;
/// Height of the area that a plot of lines is drawn in, in pixels.
const LINES_HEIGHT: u32 = 320;
/// Height of one bar, in pixels.
const BAR_HEIGHT: u32 = 16;
/// Space between the bars of two cases, in pixels.
const BAR_GAP: u32 = 12;
/// Height of the axis below the bars, with its name, in pixels.
const AXIS_HEIGHT: u32 = 46;
/// Height of one line of the legend, in pixels.
const LEGEND_LINE: u32 = 20;
/// Space around the plot, in pixels.
const MARGIN: u32 = 12;
/// An upper bound for the width of a character of [`FONT`], in pixels.
const CHARACTER_WIDTH: u32 = 7;
/// The most characters in one line of a case's label.
const LABEL_CHARACTERS: usize = 34;
/// Height of one line of a case's label, in pixels.
const LABEL_LINE: i32 = 14;
const FONT: (&str, u32) = ("sans-serif", 12);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0xc0, 0x49, 0x1f),
    RGBColor(0x2f, 0x5d, 0x8a),
    RGBColor(0x5a, 0x8f, 0x3c),
    RGBColor(0x8a, 0x6d, 0xa8),
    RGBColor(0x80, 0x80, 0x80),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The values of a system along the axis: position, median, least, most.
struct Series {
    name: String,
    points: Vec<(usize, f64, f64, f64)>,
}

/// Draws one panel: the legend, and below it lines or horizontal bars.
pub(crate) fn svg(rows: &[&Row], shape: Shape) -> Result<String> {
    let mut points: Vec<&str> = Vec::new();
    for row in rows {
        if !points.contains(&row.point.as_str()) {
            points.push(&row.point);
        }
    }
    let series = series_of(rows, &points);
    let top = series.iter().flat_map(|s| &s.points).map(|point| point.3).fold(0.0, f64::max) * 1.15;
    let top = if top > 0.0 { top } else { 1.0 };
    let unit = rows.first().map_or("", |row| row.unit);
    let height = match shape {
        Shape::Lines => LINES_HEIGHT,
        Shape::Bars => points.len() as u32 * case_height(series.len()) + AXIS_HEIGHT + 2 * MARGIN,
    };
    let legend = legend_places(&series);
    let legend_height = MARGIN + legend.last().map_or(0, |place| place.1 as u32 + LEGEND_LINE);
    let mut text = String::new();
    {
        let whole = SVGBackend::with_string(&mut text, (WIDTH, legend_height + height)).into_drawing_area();
        whole.fill(&WHITE)?;
        let (top_area, area) = whole.split_vertically(legend_height);
        draw_legend(&top_area, &series, &legend)?;
        match shape {
            Shape::Lines => draw_lines(&area, &points, &series, unit, top)?,
            Shape::Bars => draw_bars(&area, &points, &series, unit, top)?,
        }
        whole.present()?;
    }
    Ok(text)
}

/// Mortar first, then each rival in order of appearance.
fn series_of(rows: &[&Row], points: &[&str]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows {
        let Some(at) = points.iter().position(|point| *point == row.point) else { continue };
        for (name, values) in [("Mortar", &row.mortar), (row.rival_name.as_str(), &row.rival)] {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let place = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
                all.push(Series { name: name.to_owned(), points: Vec::new() });
                all.len() - 1
            });
            // Mortar is in a row for each rival, but is drawn once.
            if all[place].points.iter().all(|point| point.0 != at) {
                all[place].points.push((at, median(values), least, most));
            }
        }
    }
    all
}

/// The positions of the legend's entries, in lines that fit the width.
fn legend_places(series: &[Series]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (MARGIN, MARGIN);
    let place = |one: &Series| {
        let width = 36 + one.name.chars().count() as u32 * CHARACTER_WIDTH;
        if x > MARGIN && x + width > WIDTH {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        let place = (x as i32, y as i32);
        x += width;
        place
    };
    series.iter().map(place).collect()
}

fn draw_legend(area: &Area<'_>, series: &[Series], places: &[(i32, i32)]) -> Result<()> {
    for (index, (one, (x, y))) in series.iter().zip(places).enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        area.draw(&Rectangle::new([(*x, *y), (x + 12, y + 10)], colour.filled()))?;
        area.draw(&Text::new(one.name.clone(), (x + 18, *y), FONT.into_font()))?;
    }
    Ok(())
}

/// Height of the bars of one case, in pixels.
fn case_height(series: usize) -> u32 {
    series as u32 * BAR_HEIGHT + BAR_GAP
}

/// Splits a label between words into lines of at most [`LABEL_CHARACTERS`].
fn wrap(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= LABEL_CHARACTERS {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Draws horizontal bars, one below the other, with labels on the left and medians on the right.
fn draw_bars(area: &Area<'_>, points: &[&str], series: &[Series], unit: &str, top: f64) -> Result<()> {
    let labels: Vec<Vec<String>> = points.iter().map(|point| wrap(point)).collect();
    let longest = labels.iter().flatten().map(|line| line.chars().count()).max().unwrap_or(0);
    let height = f64::from(case_height(series.len()));
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(AXIS_HEIGHT)
        .y_label_area_size(longest as u32 * CHARACTER_WIDTH + 10)
        .build_cartesian_2d(0.0..top, 0.0..points.len() as f64 * height)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .x_label_formatter(&|x| quantity(*x))
        .x_desc(unit)
        .light_line_style(WHITE)
        .label_style(FONT)
        .draw()?;
    // The first case is at the top, and coordinates count from the bottom.
    let from_below = |at: usize, down: f64| (points.len() - at) as f64 * height - down;
    let bar = f64::from(BAR_HEIGHT);
    // Coordinates of the chart are relative to the whole picture, those of the area are not.
    let (area_left, area_top) = area.get_base_pixel();
    let style = FONT.into_text_style(area).pos(Pos::new(HPos::Right, VPos::Center));
    for (at, lines) in labels.iter().enumerate() {
        let (left, middle) = chart.backend_coord(&(0.0, from_below(at, height / 2.0)));
        for (number, line) in lines.iter().enumerate() {
            let down = LABEL_LINE * number as i32 - LABEL_LINE * (lines.len() as i32 - 1) / 2;
            let (left, top) = (left - area_left, middle + down - area_top);
            area.draw(&Text::new(line.clone(), (left - 8, top), style.clone()))?;
        }
    }
    for (index, one) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let upper = f64::from(BAR_GAP) / 2.0 + index as f64 * bar;
        chart.draw_series(one.points.iter().map(|p| {
            let (from, to) = (from_below(p.0, upper + 1.0), from_below(p.0, upper + bar - 1.0));
            Rectangle::new([(0.0, from), (p.1, to)], colour.mix(0.85).filled())
        }))?;
        chart.draw_series(one.points.iter().map(|p| {
            let middle = from_below(p.0, upper + bar / 2.0);
            PathElement::new(vec![(p.2, middle), (p.3, middle)], BLACK.mix(0.6))
        }))?;
        let style = FONT.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series(one.points.iter().map(|p| {
            let end = (p.3, from_below(p.0, upper + bar / 2.0));
            EmptyElement::at(end) + Text::new(quantity(p.1), (4, 0), style.clone())
        }))?;
    }
    Ok(())
}

/// Draws lines over a numeric axis.
fn draw_lines(area: &Area<'_>, points: &[&str], series: &[Series], unit: &str, top: f64) -> Result<()> {
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(34)
        .y_label_area_size(76)
        .build_cartesian_2d(-0.5..points.len() as f64 - 0.5, 0.0..top)?;
    let label = |x: &f64| {
        let near = x.round();
        let name = points.get(near as usize).filter(|_| near >= 0.0 && (x - near).abs() < 0.01);
        name.map_or_else(String::new, |name| (*name).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(points.len() * 2 + 1)
        .x_label_formatter(&label)
        .y_label_formatter(&|y| quantity(*y))
        .y_desc(unit)
        .light_line_style(WHITE)
        .label_style(FONT)
        .draw()?;
    for (index, one) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let line = one.points.iter().map(|p| (p.0 as f64, p.1));
        chart.draw_series(line.clone().map(|xy| Circle::new(xy, 3, colour.filled())))?;
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
        chart.draw_series(one.points.iter().map(|p| {
            let x = p.0 as f64;
            PathElement::new(vec![(x, p.2), (x, p.3)], BLACK.mix(0.6))
        }))?;
    }
    Ok(())
}

/// A number in a short form for a table or an axis: `1,234`, `12.3`, `0.083`.
pub(crate) fn quantity(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        "–".to_owned()
    } else if magnitude >= 1000.0 {
        let digits = format!("{:.0}", magnitude);
        let mut out = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        if value < 0.0 { format!("-{out}") } else { out }
    } else if magnitude >= 100.0 || magnitude == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Better;

    fn row(point: &str, rival: &str) -> Row {
        Row {
            case: point.into(),
            panel: String::new(),
            point: point.into(),
            unit: "transactions/s",
            better: Better::Higher,
            rival_name: rival.into(),
            mortar: vec![1200.0, 1100.0, 1300.0],
            rival: vec![900.0],
            target_ratio: None,
        }
    }

    /// The right ends of the labels on the left of the bars: x and y.
    fn label_places(svg: &str) -> Vec<(i32, i32)> {
        let number = |text: &str, key: &str| -> i32 {
            let rest = text.split(&format!("{key}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let texts = svg.split("<text ").skip(1).map(|text| text.split('>').next().unwrap());
        texts
            .filter(|text| text.contains("text-anchor=\"end\""))
            .map(|text| (number(text, "x"), number(text, "y")))
            .collect()
    }

    #[test]
    fn labels_of_bars_are_complete_and_do_not_overlap() {
        let points: Vec<String> = (1..=8)
            .map(|count| format!("through {count} peer servers to {count} bricks, pipelining 16, of the library"))
            .collect();
        let rows: Vec<Row> =
            points.iter().flat_map(|point| ["Redis", "PostgreSQL"].map(|rival| row(point, rival))).collect();
        let svg = svg(&rows.iter().collect::<Vec<_>>(), Shape::Bars).unwrap();
        let mut places = label_places(&svg);
        assert_eq!(places.len(), points.iter().map(|point| wrap(point).len()).sum::<usize>());
        places.sort_by_key(|place| place.1);
        assert!(places.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 12), "{places:?}");
        assert!(places.iter().all(|place| place.0 > 0), "{places:?}");
    }

    #[test]
    fn long_legend_is_split_into_lines() {
        let series: Vec<Series> =
            (0..5).map(|_| Series { name: "Berkeley DB in process, one thread".into(), points: Vec::new() }).collect();
        let places = legend_places(&series);
        assert!(places.last().unwrap().1 > places[0].1);
        assert!(places.iter().all(|place| place.0 < WIDTH as i32 / 2 + 40), "{places:?}");
    }

    #[test]
    fn quantities_are_short() {
        let texts = [1_234_567.0, 999.6, 12.34, 0.0834, 0.0].map(quantity);
        assert_eq!(texts, ["1,234,567", "1000", "12.3", "0.083", "0"]);
    }
}
