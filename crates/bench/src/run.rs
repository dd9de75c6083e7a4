//! The parameters of a run: what to measure, how long, and where files go.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::Result;
use crate::contest::ContestResult;
use crate::figure::{Better, Row};

/// One run of the benchmark.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Whether sizes and times are reduced; the report notes that.
    pub(crate) quick: bool,
    /// Measure only this figure, or the cases whose text contains this.
    pub(crate) only: Option<String>,
    /// The directory of measured files: on a disk, not in memory.
    pub(crate) data: PathBuf,
}

/// The names of a metric in the report.
#[derive(Clone, Debug)]
pub(crate) struct MetricSpec {
    pub(crate) case: String,
    pub(crate) panel: String,
    pub(crate) point: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// The required ratio against rivals that are not only for reference.
    pub(crate) target_ratio: Option<f64>,
}

impl Run {
    /// Number of runs of each side.
    pub(crate) const REPEATS: usize = 3;

    /// A copy without the filter, for a figure that was selected.
    pub(crate) fn without_filter(&self) -> Self {
        Self { only: None, ..self.clone() }
    }

    /// `full`, or `quick` in a quick run.
    pub(crate) fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A new directory for one side of a contest, removed when the value is dropped.
    pub(crate) fn directory(&self, name: &str) -> Result<TempDir> {
        std::fs::create_dir_all(&self.data)?;
        Ok(tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&self.data)?)
    }

    /// Why a case that needs so many bytes of disk is skipped, if the disk has less.
    pub(crate) fn lack_of_space(&self, needed: u64) -> Result<Option<String>> {
        std::fs::create_dir_all(&self.data)?;
        let disk = rustix::fs::statvfs(&self.data)?;
        let free = disk.f_bavail * disk.f_frsize;
        let (place, mib) = (self.data.display(), |bytes: u64| bytes >> 20);
        Ok((free < needed).then(|| {
            format!(
                "{place} has {} MiB free, and {} MiB are needed: choose another disk with --out",
                mib(free),
                mib(needed)
            )
        }))
    }

    /// Whether any of these cases of a figure is selected.
    pub(crate) fn wants(&self, figure: &str, cells: &[MetricSpec]) -> bool {
        cells.iter().any(|cell| self.wants_case(figure, &cell.case))
    }

    /// Whether a case of a figure is selected.
    pub(crate) fn wants_case(&self, figure: &str, case: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == figure || case.contains(only))
    }

    /// The rows of a contest whose first side is Mortar: one for each metric and rival.
    pub(crate) fn rows(&self, figure: &str, outcome: &ContestResult, cells: &[MetricSpec]) -> Vec<Row> {
        let mut rows = Vec::new();
        for (metric, cell) in cells.iter().enumerate().filter(|(_, cell)| self.wants_case(figure, &cell.case)) {
            rows.extend((1..outcome.sides()).map(|side| Row {
                case: cell.case.clone(),
                panel: cell.panel.clone(),
                point: cell.point.clone(),
                unit: cell.unit,
                better: cell.better,
                rival_name: outcome.names[side].clone(),
                mortar: outcome.values(0, metric),
                rival: outcome.values(side, metric),
                target_ratio: cell.target_ratio.filter(|_| !outcome.for_reference[side]),
            }));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::{Side, interleave};

    fn cell(case: &str) -> MetricSpec {
        let text = String::new;
        MetricSpec {
            case: case.into(),
            panel: text(),
            point: text(),
            unit: "s",
            better: Better::Lower,
            target_ratio: Some(1.0),
        }
    }

    #[test]
    fn filter_is_a_figure_or_part_of_a_case() {
        let run = |only: &str| Run { quick: true, only: Some(only.into()), data: PathBuf::new() };
        assert!(run("kv").wants("kv", &[cell("tcp get")]));
        assert!(run("tcp").wants("kv", &[cell("unix get"), cell("tcp get")]));
        assert!(!run("udp").wants("kv", &[cell("tcp get")]));
    }

    #[test]
    fn case_is_skipped_if_the_disk_is_too_full() {
        let directory = tempfile::tempdir().unwrap();
        let run = Run { quick: true, only: None, data: directory.path().join("data") };
        assert_eq!(run.lack_of_space(1).unwrap(), None);
        let why = run.lack_of_space(u64::MAX).unwrap().unwrap();
        assert!(why.contains("17592186044415 MiB are needed"), "{why}");
    }

    #[test]
    fn rival_for_reference_has_no_required_ratio() {
        let run = Run { quick: true, only: None, data: PathBuf::new() };
        let mut sides = ["Mortar", "a", "b"].map(|name| Side::new(name, || Ok(vec![1.0])));
        sides[2].for_reference = true;
        let outcome = interleave("test", 1, &mut sides).unwrap();
        let bars: Vec<Option<f64>> =
            run.rows("kv", &outcome, &[cell("x")]).iter().map(|row| row.target_ratio).collect();
        assert_eq!(bars, [Some(1.0), None]);
    }
}
