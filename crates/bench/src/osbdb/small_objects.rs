//! OSBDB figure 2: throughput of objects of 1,024 bytes over their number.

use std::time::Instant;

use bytes::Bytes;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use super::content::{Check, stamped_bytes};
use super::{Objects, sides};
use crate::Result;
use crate::contest::interleave;
use crate::figure::{Better, Figure, Shape};
use crate::rival;
use crate::run::{MetricSpec, Run};

const SIZE: usize = 1024;
const GROUP: usize = 1024;
const COUNTS: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
const PAPER_ROUNDS: usize = 128;

/// Fills a store with this many objects, reopens it, and reads them in random order.
pub(super) fn measure(run: &Run) -> Result<Figure> {
    let (counts, budget) = run.choose((&COUNTS[..], 1 << 20), (&COUNTS[..3], 8 << 10));
    let mut figure = Figure {
        id: "osbdb-2",
        title: "objects of 1,024 bytes, throughput over object count",
        about:
            "Rounds of: create the objects in an empty store, each in a transaction of its own, every 1,024 on disk \
                before the next begin; close and open the store; read all in random order and check them."
                .into(),
        paper: "Flat for the B-tree, falling with the count for the hash table (128 rounds).",
        parameters: [
            vec![format!("at most {PAPER_ROUNDS} rounds, as in the paper, and {budget} objects a run")],
            sides::settings(sides::Use::Records),
        ]
        .concat(),
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: rival::missing(),
    };
    for count in counts {
        let rounds = (budget / count).clamp(1, PAPER_ROUNDS);
        let cell = |what: &str| MetricSpec {
            case: format!("{what} {count} objects of 1 KiB"),
            panel: format!("{what}, objects/s over object count"),
            point: count.to_string(),
            unit: "objects/s",
            better: Better::Higher,
            target_ratio: Some(1.0),
        };
        let cells = [cell("write"), cell("read")];
        let contents: Vec<Bytes> = (0..*count).map(|index| stamped_bytes(index as u64, SIZE)).collect();
        let mut order: Vec<usize> = (0..*count).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(2));
        let (contents, order, total) = (&contents, &order, (rounds * count) as f64);
        let mut contest = sides::contest(sides::Use::Records, |side| {
            let (mut writing, mut reading) = (0.0, 0.0);
            for _ in 0..rounds {
                let mut fresh = side.create(run)?;
                let (wrote, read) = round(&mut *fresh.store, contents, order)?;
                writing += wrote;
                reading += read;
            }
            Ok(vec![total / writing, total / reading])
        });
        let outcome = interleave(&format!("osbdb-2, {count} objects"), Run::REPEATS, &mut contest)?;
        figure.rows.extend(run.rows("osbdb-2", &outcome, &cells));
    }
    Ok(figure)
}

/// Seconds of writing and of reading.
fn round(store: &mut dyn Objects, contents: &[Bytes], order: &[usize]) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let mut oids = Vec::with_capacity(contents.len());
    for group in contents.chunks(GROUP) {
        oids.extend(store.create_all(group)?);
    }
    let writing = begun.elapsed().as_secs_f64();
    store.reopen()?;
    let begun = Instant::now();
    for index in order {
        let mut check = Check::new(&contents[*index]);
        store.read(oids[*index], 0, SIZE, &mut |piece| check.look(piece))?;
        check.end()?;
    }
    Ok((writing, begun.elapsed().as_secs_f64()))
}
