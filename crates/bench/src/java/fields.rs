//! What an access to a member of a loaded object costs, and a call of the native library.

use std::time::Duration;

use super::program::{Program, Task};
use super::store::StoreKind;
use super::{Metric, add_rows, new_figure};
use crate::Result;
use crate::figure::{Better, Figure};
use crate::run::Run;

/// Measures accesses; the parameters have the cost of the native library.
pub(super) fn measure(run: &Run, program: &Program) -> Result<Figure> {
    let duration = run.choose(Duration::from_secs(5), Duration::from_secs(1));
    let mut figure = new_figure(
        "java-fields",
        "access to members of loaded objects",
        "One thread reads two members of each of 1,000 loaded objects again and again, by their getters and within a transaction. The \
         enhancer of DataNucleus adds a test to each access. Plain Java is the same class as it was compiled.",
        vec![format!("{} s a run after a third of that as warm-up", duration.as_secs())],
    );
    let case = "read a member";
    let metrics = [Metric::new(case, "access_ns", "", "ns", Better::Lower, None)];
    let task =
        |title: &str, workload| Task { title: title.to_owned(), workload, threads: 1, duration, options: Vec::new() };
    let stores = [StoreKind::MemoryMortar, StoreKind::Plain, StoreKind::DataNucleus];
    add_rows(run, program, &mut figure, &stores, &task(case, "fields"), &metrics)?;
    if !figure.rows.is_empty() {
        let measured = program.run(run, StoreKind::MemoryMortar, &task("crossings", "crossings"))?;
        figure.parameters.push(format!(
            "Native library: {:.0} ns a call without content (JNI); {:.0} ns to read a cached object of {} bytes, which copies {} bytes from Java and {} \
             bytes to Java",
            measured.value("crossing_ns")?,
            measured.value("cached_object_ns")?,
            measured.value("object_bytes")?,
            measured.value("request_bytes")?,
            measured.value("reply_bytes")?,
        ));
    }
    Ok(figure)
}
