//! Writes the results: a page with plots and tables, lines of JSON, and a table for the terminal.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::figure::{Figure, Row, median};
use crate::machine::Machine;
use crate::paper;
use crate::plot::{self, quantity};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;width:100%}th,td{padding:.25em .6em;border-bottom:1px solid #ddd;text-align:left}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.behind{color:#a00;font-weight:600}.ahead{color:#161}\
.note{color:#555;font-size:.9em}.reduced{background:#fff3cd;padding:.5em 1em}svg{max-width:100%;height:auto}";

/// The lines of JSON of all figures.
pub(crate) fn json(figures: &[Figure], reduced: bool) -> Result<String> {
    let mut out = String::new();
    for figure in figures {
        for row in &figure.rows {
            writeln!(out, "{}", row.to_json(figure.id, reduced)?)?;
        }
    }
    Ok(out)
}

/// The rows as a table for a terminal.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut lines = vec![["figure", "case", "Mortar", "rival", "", "unit", "ratio", "required"].map(str::to_owned)];
    for figure in figures {
        lines.extend(figure.rows.iter().map(|row| {
            [
                figure.id.to_owned(),
                row.case.clone(),
                quantity(median(&row.mortar)),
                quantity(median(&row.rival)),
                row.rival_name.clone(),
                row.unit.to_owned(),
                ratio_text(row),
                target_text(row),
            ]
        }));
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            // Numbers are right-aligned.
            let (before, after) = if matches!(column, 2 | 3 | 6) { (pad.as_str(), "") } else { ("", pad.as_str()) };
            text += &format!("{before}{cell}{after}  ");
        }
        out += text.trim_end();
        out.push('\n');
    }
    for skipped in figures.iter().flat_map(|figure| figure.skipped.iter().map(move |why| (figure.id, why))) {
        out += &format!("skipped: {}: {}\n", skipped.0, skipped.1);
    }
    out
}

/// Writes the page.
pub(crate) fn page(path: &Path, name: &str, figures: &[Figure], machine: &Machine, reduced: bool) -> Result<()> {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Mortar: {name}</title><style>{STYLE}</style>\
         <h1>Mortar: <code>script/bench {name}</code></h1><p>{}</p>",
        escape(&machine.line())
    );
    if reduced {
        out += "<p class=\"reduced\"><b>Reduced run</b> (<code>--quick</code>): sizes and times are reduced.</p>";
    }
    out += "<p class=\"note\">Each case ran in turn with its rivals in the same run; values are medians, whiskers reach \
            from the least run to the most. A ratio above 1 means that Mortar is ahead, whatever the unit.</p>";
    for figure in figures {
        section(&mut out, figure)?;
    }
    out += "</html>\n";
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, out)?;
    Ok(())
}

fn section(out: &mut String, figure: &Figure) -> Result<()> {
    write!(out, "<h2 id=\"{}\">{}: {}</h2>", figure.id, figure.id, escape(figure.title))?;
    write!(out, "<p>{}</p><ul class=\"note\">", escape(&figure.about))?;
    for parameter in &figure.parameters {
        write!(out, "<li>{}</li>", escape(parameter))?;
    }
    *out += "</ul>";
    if !figure.paper.is_empty() {
        write!(out, "<p><b>The paper:</b> {}</p>", escape(figure.paper))?;
    }
    for skipped in &figure.skipped {
        write!(out, "<p class=\"reduced\">Skipped: {}</p>", escape(skipped))?;
    }
    let mut panels: Vec<&str> = Vec::new();
    for row in &figure.rows {
        if !panels.contains(&row.panel.as_str()) {
            panels.push(&row.panel);
        }
    }
    for panel in panels {
        let rows: Vec<&Row> = figure.rows.iter().filter(|row| row.panel == panel).collect();
        write!(out, "<h3>{}</h3>{}", escape(panel), plot::svg(&rows, figure.shape)?)?;
    }
    *out += "<table><tr><th>case</th><th>paper</th><th>rival</th><th class=\"n\">rival</th><th class=\"n\">Mortar</th>\
             <th>unit</th><th class=\"n\">ratio</th><th>required</th></tr>";
    for row in &figure.rows {
        let class = match row.reaches_target() {
            Some(false) => "behind",
            _ if row.ratio() >= 1.0 => "ahead",
            _ => "",
        };
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n {class}\">{}</td><td>{}</td></tr>",
            escape(&row.case),
            paper::value(figure.id, &row.case, row.unit).unwrap_or("–"),
            escape(&row.rival_name),
            format_spread(&row.rival),
            format_spread(&row.mortar),
            escape(row.unit),
            ratio_text(row),
            target_text(row),
        )?;
    }
    *out += "</table>";
    Ok(())
}

/// A ratio to nothing is none.
fn ratio_text(row: &Row) -> String {
    let ratio = row.ratio();
    if ratio.is_finite() && ratio > 0.0 { format!("{ratio:.2}") } else { "–".to_owned() }
}

fn target_text(row: &Row) -> String {
    row.target_ratio.map_or_else(|| "–".to_owned(), |bar| format!("≥ {bar:.2}"))
}

/// A median and the range of its runs.
fn format_spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = quantity(median(values));
    if values.len() < 2 || least == most {
        return middle;
    }
    format!("{middle}<br><small>{} … {}</small>", quantity(least), quantity(most))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Better, Shape};

    fn figure() -> Figure {
        let row = |point: &str, rival: &str| Row {
            case: format!("{point} <committers>"),
            panel: "throughput".into(),
            point: point.into(),
            unit: "transactions/s",
            better: Better::Higher,
            rival_name: rival.into(),
            mortar: vec![10.0, 12.0, 11.0],
            rival: vec![20.0, 21.0, 19.0],
            target_ratio: Some(0.8),
        };
        Figure {
            id: "commit",
            title: "commits",
            about: "what".into(),
            paper: "",
            parameters: vec!["4 × 512 B".into()],
            shape: Shape::Bars,
            rows: vec![row("1", "bare"), row("16", "bare")],
            skipped: vec!["nothing".into()],
        }
    }

    #[test]
    fn page_draws_every_panel_and_escapes_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/commit.html");
        let machine = Machine::describe(directory.path());
        page(&path, "commit", &[figure()], &machine, true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("<svg") && text.contains("Reduced run"));
        assert!(text.contains("16 &lt;committers&gt;") && !text.contains("<committers>"));
        assert!(text.contains("behind"));
    }

    #[test]
    fn terminal_table_has_a_line_for_each_row() {
        let text = table(&[figure()]);
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("skipped: commit: nothing"));
    }
}
