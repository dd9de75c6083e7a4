//! OSBDB figures 3 and 4: one large object written in chunks and read back in the same chunks.

use std::time::Instant;

use super::content::{Check, stamped_bytes};
use super::{Objects, sides};
use crate::Result;
use crate::contest::interleave;
use crate::figure::{Better, Figure, Shape};
use crate::rival;
use crate::run::{MetricSpec, Run};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Figure 3: 256 KiB and 1 MiB.
pub(super) fn measure_large(run: &Run) -> Result<Figure> {
    let size = run.choose(1 << 30, 64 * MIB);
    let paper = "EBOFS clearly ahead on reads, both kinds of Berkeley DB good at writes (1 GiB, 64 runs).";
    measure(run, "osbdb-3", paper, &[(256 * KIB, size), (MIB, size)])
}

/// Figure 4: 1 KiB and 4 KiB.
pub(super) fn measure_small(run: &Run) -> Result<Figure> {
    let paper = "Berkeley DB collapses at chunks of 1 and 4 KiB: partial writes (1 GiB, 16 runs).";
    let size = run.choose(1 << 30, 4 * MIB);
    measure(run, "osbdb-4", paper, &[(KIB, size), (4 * KIB, size)])
}

/// Measures these chunk sizes with objects of these sizes.
fn measure(run: &Run, id: &'static str, paper: &'static str, cases: &[(usize, usize)]) -> Result<Figure> {
    let mut figure = Figure {
        id,
        title: "one object written and read in chunks",
        about:
            "Create an empty object; write it in chunks in order, each a transaction of its own, all on disk before \
                the clock stops; then read it in the same chunks and check it, without opening again. No side waits for a \
                chunk: Berkeley DB writes its log when a buffer of 32 MiB is full and forces it at checkpoints and at the \
                end, Mortar forces all waiting chunks whenever the previous force has ended, files are forced at the end."
                .into(),
        paper,
        parameters: [
            vec!["the paper's client kept a file in objects of 4 MiB, as the first rival here does".into()],
            sides::settings(sides::Use::Chunks),
        ]
        .concat(),
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: rival::missing(),
    };
    for (chunk, size) in cases {
        let cell = |what: &str| MetricSpec {
            case: format!("{what} {} in chunks of {}", sides::size_name(*size), sides::size_name(*chunk)),
            panel: format!("{what}, MiB/s over chunk size"),
            point: sides::size_name(*chunk),
            unit: "MiB/s",
            better: Better::Higher,
            target_ratio: Some(1.0),
        };
        let cells = [cell("write"), cell("read")];
        let content = stamped_bytes(1, *size);
        let content = &content;
        let mut contest = sides::contest(sides::Use::Chunks, |side| {
            let mut fresh = side.create(run)?;
            let (writing, reading) = round(&mut *fresh.store, content, *chunk)?;
            let mib = *size as f64 / MIB as f64;
            Ok(vec![mib / writing, mib / reading])
        });
        let outcome = interleave(&format!("{id}, {}", cells[0].point), Run::REPEATS, &mut contest)?;
        figure.rows.extend(run.rows(id, &outcome, &cells));
    }
    Ok(figure)
}

/// Seconds of writing and of reading.
fn round(store: &mut dyn Objects, content: &bytes::Bytes, chunk: usize) -> Result<(f64, f64)> {
    let oid = store.create_all(&[bytes::Bytes::new()])?[0];
    let begun = Instant::now();
    for offset in (0..content.len()).step_by(chunk) {
        store.write(oid, offset as u64, &content.slice(offset..offset + chunk))?;
    }
    store.force()?;
    let writing = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut check = Check::new(content);
    for offset in (0..content.len()).step_by(chunk) {
        store.read(oid, offset as u64, chunk, &mut |piece| check.look(piece))?;
    }
    check.end()?;
    Ok((writing, begun.elapsed().as_secs_f64()))
}
