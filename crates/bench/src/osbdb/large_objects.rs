//! OSBDB figure 1: throughput of large objects over their size.

use std::time::Instant;

use bytes::Bytes;

use super::content::{Check, stamped_bytes};
use super::{Objects, sides};
use crate::Result;
use crate::contest::interleave;
use crate::figure::{Better, Figure, Shape};
use crate::rival;
use crate::run::{MetricSpec, Run};

const MIB: usize = 1 << 20;
const SIZES: [usize; 5] = [64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB];
const PAPER_ROUNDS: usize = 1024;

/// Writes two objects per round, reopens the store, and reads them in the other order.
pub(super) fn measure(run: &Run) -> Result<Figure> {
    let (most, budget) = run.choose((128, 512 * MIB), (4, 32 * MIB));
    let mut figure = Figure {
        id: "osbdb-1",
        title: "large objects, write and read throughput over object size",
        about:
            "Rounds of: create two objects, each in a transaction of its own, both on disk before the clock stops; close \
                and open the store; read both in the other order and check them. The files stay in the page cache. \
                Berkeley DB forces its log once for both, with their content, and writes the content to its database when \
                it is closed, which is not timed. Mortar forces a blob file with their content, then its log, for as many \
                of the two as have arrived by then. Files are forced one by one, then their directory."
                .into(),
        paper: "EBOFS ahead of Berkeley DB at nearly every size from 64 KiB to 16 MiB (1,024 rounds, 2.8 GHz Pentium D).",
        parameters: [
            vec![format!("reduced: at most {most} rounds and {} MiB a run, the paper's were {PAPER_ROUNDS}", budget / MIB)],
            sides::settings(sides::Use::Whole),
        ]
        .concat(),
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: rival::missing(),
    };
    for size in SIZES {
        let rounds = (budget / (2 * size)).clamp(1, most);
        let cell = |what: &str| MetricSpec {
            case: format!("{what} objects of {}", sides::size_name(size)),
            panel: format!("{what}, MiB/s over object size"),
            point: sides::size_name(size),
            unit: "MiB/s",
            better: Better::Higher,
            target_ratio: Some(1.0),
        };
        let cells = [cell("write"), cell("read")];
        let contents = [stamped_bytes(1, size), stamped_bytes(2, size)];
        let contents = &contents;
        let mut contest = sides::contest(sides::Use::Whole, |side| {
            let mut fresh = side.create(run)?;
            let (mut writing, mut reading) = (0.0, 0.0);
            for _ in 0..rounds {
                let (wrote, read) = round(&mut *fresh.store, contents)?;
                writing += wrote;
                reading += read;
            }
            let mib = (rounds * 2 * size) as f64 / MIB as f64;
            Ok(vec![mib / writing, mib / reading])
        });
        let outcome = interleave(&format!("osbdb-1, {}", cells[0].point), Run::REPEATS, &mut contest)?;
        figure.rows.extend(run.rows("osbdb-1", &outcome, &cells));
    }
    Ok(figure)
}

/// Seconds of writing and of reading.
fn round(store: &mut dyn Objects, contents: &[Bytes]) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let oids = store.create_all(contents)?;
    let writing = begun.elapsed().as_secs_f64();
    store.reopen()?;
    let begun = Instant::now();
    for (oid, content) in oids.iter().zip(contents).rev() {
        let mut check = Check::new(content);
        store.read(*oid, 0, content.len(), &mut |piece| check.look(piece))?;
        check.end()?;
    }
    Ok((writing, begun.elapsed().as_secs_f64()))
}
