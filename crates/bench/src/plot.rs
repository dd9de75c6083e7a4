//! Draws the rows of a figure as SVG: one plot a panel, one series a system, whiskers from the worst run to the best.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::Result;
use crate::figure::{Row, Shape, median};

const SIZE: (u32, u32) = (760, 340);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0xc0, 0x49, 0x1f),
    RGBColor(0x2f, 0x5d, 0x8a),
    RGBColor(0x5a, 0x8f, 0x3c),
    RGBColor(0x8a, 0x6d, 0xa8),
    RGBColor(0x80, 0x80, 0x80),
];

/// One system's values along the axis: position, median, least, most.
struct Series {
    name: String,
    points: Vec<(usize, f64, f64, f64)>,
}

/// Draws one panel.
pub(crate) fn svg(rows: &[&Row], shape: Shape) -> Result<String> {
    let mut points: Vec<&str> = Vec::new();
    for row in rows {
        if !points.contains(&row.point.as_str()) {
            points.push(&row.point);
        }
    }
    let series = series_of(rows, &points);
    let top = series.iter().flat_map(|s| &s.points).map(|point| point.3).fold(0.0, f64::max) * 1.15;
    let unit = rows.first().map_or("", |row| row.unit);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area, &points, &series, unit, if top > 0.0 { top } else { 1.0 }, shape)?;
        area.present()?;
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
            // Mortar stands in a row for each rival: it is drawn once.
            if all[place].points.iter().all(|point| point.0 != at) {
                all[place].points.push((at, median(values), least, most));
            }
        }
    }
    all
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    points: &[&str],
    series: &[Series],
    unit: &str,
    top: f64,
    shape: Shape,
) -> Result<()> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
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
        .label_style(("sans-serif", 12))
        .draw()?;
    let width = 0.8 / series.len() as f64;
    for (index, one) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let shift = match shape {
            Shape::Lines => 0.0,
            Shape::Bars => (index as f64 + 0.5) * width - 0.4,
        };
        let place = |at: usize| at as f64 + shift;
        let drawn = match shape {
            Shape::Lines => {
                let line = one.points.iter().map(|p| (place(p.0), p.1));
                chart.draw_series(line.clone().map(|xy| Circle::new(xy, 3, colour.filled())))?;
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            }
            Shape::Bars => chart.draw_series(one.points.iter().map(|p| {
                let x = place(p.0);
                Rectangle::new([(x - width * 0.45, 0.0), (x + width * 0.45, p.1)], colour.mix(0.85).filled())
            }))?,
        };
        drawn
            .label(one.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        chart.draw_series(one.points.iter().map(|p| {
            let x = place(p.0);
            PathElement::new(vec![(x, p.2), (x, p.3)], BLACK.mix(0.6))
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

/// A number short enough for a table or an axis: `1,234`, `12.3`, `0.083`.
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

    #[test]
    fn quantities_are_short() {
        let texts = [1_234_567.0, 999.6, 12.34, 0.0834, 0.0].map(quantity);
        assert_eq!(texts, ["1,234,567", "1000", "12.3", "0.083", "0"]);
    }
}
