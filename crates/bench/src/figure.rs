//! Results of benchmarks: figures with rows, each comparing Mortar with one rival.
//!
//! The `ratio` of a row is above 1 if Mortar is ahead, whatever the unit.

use serde::Serialize;

/// Which direction of a unit is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Throughput.
    Higher,
    /// Latency, memory, lines.
    Lower,
}

/// How the plots of a figure are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Points joined by lines along a numeric axis.
    Lines,
    /// Bars of cases side by side.
    Bars,
}

/// One case: Mortar and one rival, measured in the same run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The description of the case: `tcp get 1 KB, pipelining 16`.
    pub(crate) case: String,
    /// The plot of the row; rows of a panel share it.
    pub(crate) panel: String,
    /// The position of the row on the axis.
    pub(crate) point: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) rival_name: String,
    /// One value per run.
    pub(crate) mortar: Vec<f64>,
    /// One value per run.
    pub(crate) rival: Vec<f64>,
    /// The ratio that is required, if any.
    pub(crate) target_ratio: Option<f64>,
}

/// One figure or table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The identifier that `--only` takes, such as `osbdb-2`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What is measured, and how both sides are treated equally.
    pub(crate) about: String,
    /// The paper's result on its machines; empty if no paper measured it.
    pub(crate) paper: &'static str,
    pub(crate) parameters: Vec<String>,
    pub(crate) shape: Shape,
    pub(crate) rows: Vec<Row>,
    /// Cases that were skipped, and why.
    pub(crate) skipped: Vec<String>,
}

/// A row in the form of `--json`.
#[derive(Serialize)]
struct JsonRow<'a> {
    figure: &'a str,
    case: &'a str,
    unit: &'a str,
    mortar: f64,
    rival: f64,
    rival_name: &'a str,
    ratio: f64,
    better: Better,
    runs: usize,
    /// Set if sizes or times were reduced by `--quick`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reduced: bool,
}

impl Row {
    /// How far ahead Mortar is: more than 1 is ahead.
    pub(crate) fn ratio(&self) -> f64 {
        let (mortar, rival) = (median(&self.mortar), median(&self.rival));
        match self.better {
            Better::Higher => mortar / rival,
            Better::Lower => rival / mortar,
        }
    }

    /// Whether the row reaches the required ratio; `None` if none is required.
    pub(crate) fn reaches_target(&self) -> Option<bool> {
        self.target_ratio.map(|bar| self.ratio() >= bar)
    }

    /// The row as one line of JSON.
    pub(crate) fn to_json(&self, figure: &str, reduced: bool) -> serde_json::Result<String> {
        serde_json::to_string(&JsonRow {
            figure,
            case: &self.case,
            unit: self.unit,
            mortar: round_significant(median(&self.mortar)),
            rival: round_significant(median(&self.rival)),
            rival_name: &self.rival_name,
            ratio: round_significant(self.ratio()),
            better: self.better,
            runs: self.mortar.len(),
            reduced,
        })
    }
}

/// The median of the values; NaN if there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Rounds to four significant digits, because three runs do not justify more.
fn round_significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    // Whole numbers stay whole: a division by a power of ten would leave fractional digits.
    if digits <= 0 { value.round() } else { (value * 10f64.powi(digits)).round() / 10f64.powi(digits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(better: Better, mortar: f64, rival: f64) -> Row {
        Row {
            case: "16 committers".into(),
            panel: String::new(),
            point: String::new(),
            unit: "x",
            better,
            rival_name: "bare".into(),
            mortar: vec![mortar; 3],
            rival: vec![rival; 3],
            target_ratio: Some(0.8),
        }
    }

    #[test]
    fn ratio_above_one_is_ahead_for_every_unit() {
        assert_eq!(row(Better::Higher, 200.0, 100.0).ratio(), 2.0);
        assert_eq!(row(Better::Lower, 50.0, 100.0).ratio(), 2.0);
        assert_eq!(row(Better::Higher, 70.0, 100.0).reaches_target(), Some(false));
    }

    #[test]
    fn median_ignores_one_bad_run() {
        assert_eq!(median(&[3.0, 1000.0, 1.0]), 3.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_row_is_one_line_of_json() {
        let json = row(Better::Higher, 123_456.7, 100_000.0).to_json("commit", false).unwrap();
        assert_eq!(
            json,
            r#"{"figure":"commit","case":"16 committers","unit":"x","mortar":123457.0,"rival":100000.0,"rival_name":"bare","ratio":1.235,"better":"higher","runs":3}"#
        );
    }
}
