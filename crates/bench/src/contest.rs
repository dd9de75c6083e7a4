//! Runs the sides of a comparison in turn, so that load from other processes affects all of them.

use crate::Result;
use crate::progress;

/// One side: Mortar, or a rival.
pub(crate) struct Side<'a> {
    pub(crate) name: String,
    /// Whether it is only shown for reference, without a required ratio.
    pub(crate) for_reference: bool,
    /// Executes one run and returns its values, in the same order on every side.
    pub(crate) run: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { name: name.into(), for_reference: false, run: Box::new(run) }
    }

    /// Marks the side as a reference without a required ratio.
    pub(crate) fn for_reference(mut self) -> Self {
        self.for_reference = true;
        self
    }
}

/// The values of all sides: `values[side][metric][run]`.
pub(crate) struct ContestResult {
    pub(crate) names: Vec<String>,
    pub(crate) for_reference: Vec<bool>,
    values: Vec<Vec<Vec<f64>>>,
}

impl ContestResult {
    /// The values of a metric of one side, one per run.
    pub(crate) fn values(&self, side: usize, metric: usize) -> Vec<f64> {
        self.values[side][metric].clone()
    }

    /// Number of sides.
    pub(crate) fn sides(&self) -> usize {
        self.values.len()
    }
}

/// Runs all sides `repeats` times in turn. Each round begins with another side.
pub(crate) fn interleave(title: &str, repeats: usize, sides: &mut [Side<'_>]) -> Result<ContestResult> {
    let count = sides.len();
    let mut values: Vec<Vec<Vec<f64>>> = vec![Vec::new(); count];
    for round in 0..repeats {
        for turn in 0..count {
            let index = (round + turn) % count;
            let side = &mut sides[index];
            let measured = (side.run)().map_err(|error| format!("{title}: {}: {error}", side.name))?;
            let text = measured.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join("  ");
            progress::line(format_args!("{title}: run {} of {repeats}: {}: {text}", round + 1, side.name));
            let metrics = &mut values[index];
            metrics.resize(measured.len(), Vec::new());
            for (metric, value) in metrics.iter_mut().zip(measured) {
                metric.push(value);
            }
        }
    }
    let names = sides.iter().map(|side| side.name.clone()).collect();
    Ok(ContestResult { names, for_reference: sides.iter().map(|side| side.for_reference).collect(), values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn sides_take_turns_and_each_begins_a_round() {
        let order = RefCell::new(Vec::new());
        let side = |name: &'static str| {
            let order = &order;
            Side::new(name, move || {
                order.borrow_mut().push(name);
                Ok(vec![1.0, 2.0])
            })
        };
        let outcome = interleave("test", 2, &mut [side("a"), side("b")]).unwrap();
        assert_eq!(*order.borrow(), ["a", "b", "b", "a"]);
        assert_eq!(outcome.values(1, 1), [2.0, 2.0]);
    }
}
