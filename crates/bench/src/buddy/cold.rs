//! Figures 7 to 9: clients with empty caches that only read.

use std::time::Duration;

use super::costs::{self, milliseconds};
use super::model::Costs;
use super::site::{Scale, Store};
use super::workload::{Breakdown, Level, Member, Times, run_all, sum};
use super::{at_most_row, base_row, benefit_rows, percent_less};
use crate::Result;
use crate::figure::{Figure, Row, Shape};
use crate::progress;
use crate::run::Run;

const CLIENTS: [usize; 3] = [3, 5, 10];
/// The paper's benefits at 40 ms, and those that are required of us: strictly serializable, and at group snapshots. In percent.
const AT_40_MS: [(usize, f64, f64, f64); 3] = [(3, 39.0, 48.0, 66.0), (5, 46.0, 58.0, 76.0), (10, 56.0, 66.0, 84.0)];
/// Ten clients from 20 ms on: strictly serializable, and at group snapshots. In percent.
const TEN_CLIENTS: (f64, f64) = (66.0, 84.0);
/// The most copies of the module that a group may move over the link.
const COPIES: f64 = 1.2;

/// What clients with empty caches have measured.
struct Cold {
    times: Times,
    /// Pages that members asked for, for each that crossed the link; 1 without a redirector.
    sharing: f64,
    /// Bytes that the link has carried to the site.
    bytes: u64,
    /// Messages that the link has carried in both directions.
    messages: u64,
}

/// Measures a group of clients, or clients without a redirector.
fn measure(store: &Store, scale: Scale, clients: usize, round_trip: Duration, level: Option<Level>) -> Result<Cold> {
    let site = match level {
        None => store.site(round_trip)?,
        Some(level) => store.group_site(round_trip, &format!("cold-{clients}-{level:?}").to_lowercase())?,
    };
    let mut members = Member::connect_many(store, &site, clients, level.unwrap_or(Level::Strict))?;
    let before = site.traffic();
    let times = sum(run_all(&mut members, |_, member| member.read(scale.transactions, round_trip))?);
    let after = site.traffic();
    let sharing = match &site.redirector {
        None => 1.0,
        Some(redirector) => {
            let counts = redirector.counts()?;
            counts.fetches as f64 / counts.fetched_above.max(1) as f64
        }
    };
    let chunks = |counters: &relay::Counters| counters.upstream.chunks + counters.downstream.chunks;
    progress::line(format_args!(
        "buddy: cold, {clients} clients, {:.0} ms, {}: {:.1} ms a transaction",
        milliseconds(round_trip),
        level.map_or("base", Level::text),
        times.breakdown().total
    ));
    Ok(Cold {
        times,
        sharing,
        bytes: after.downstream.bytes - before.downstream.bytes,
        messages: chunks(&after) - chunks(&before),
    })
}

/// Figures 7 and 8: where the time goes at 40 and 80 ms.
pub(super) fn breakdown(run: &Run) -> Result<Figure> {
    let scale = Scale::new(run);
    let store = Store::start(run, scale)?;
    let costs = costs::measure_costs(&store, scale)?;
    let module = costs::bytes_of_module(&store)?;
    let mut figure = Figure {
        id: "buddy-7",
        title: "a group that begins with empty caches",
        about: "Clients of one site begin at the same time, with empty caches, and run transactions that only read. They reach the server \
                over a relay that delays each direction by half of the round trip. Base is the same program without a redirector. Times \
                are the means of all clients' transactions; `server fetch` are waits of at least half a round trip. The model has the \
                costs of buddy-t1 and t2, the misses of Base, and the pages that members asked for each that crossed the link. \
                All clients share the processor cores of the machine with the server and the redirector, which the model does not know. \
                Nothing is prefetched."
            .into(),
        paper: "39 %, 46 % and 56 % less time for 3, 5 and 10 clients at 40 ms, and similarly at 80 ms.",
        parameters: vec![scale.text(), costs.text()],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for round_trip in [40, 80].map(Duration::from_millis) {
        for (clients, paper, strict, snapshot) in AT_40_MS {
            let base = measure(&store, scale, clients, round_trip, None)?;
            for (level, required) in [(Level::Strict, strict), (Level::Snapshot, snapshot)] {
                let group = measure(&store, scale, clients, round_trip, Some(level))?;
                let point = format!("{clients} clients at {:.0} ms, {}", milliseconds(round_trip), level.text());
                figure.rows.extend(breakdown_rows(&point, &group.times.breakdown(), &base.times.breakdown()));
                let paper = Some(paper).filter(|_| level == Level::Strict && round_trip.as_millis() == 40);
                let rivals =
                    [("model", Some(predict_benefit(&costs, round_trip, &base, &group, level))), ("paper", paper)];
                let measured = percent_less(group.times.breakdown().total, base.times.breakdown().total);
                let case = format!("benefit of {point}");
                figure.rows.extend(benefit_rows(&case, ("benefit", &point), measured, &rivals, Some(required)));
                figure.rows.extend(link_rows(&point, &group, &base, module));
            }
        }
    }
    Ok(figure)
}

/// Figure 9: the benefit over the latency.
pub(super) fn benefit(run: &Run) -> Result<Figure> {
    let scale = Scale::new(run);
    let store = Store::start(run, scale)?;
    let costs = costs::measure_costs(&store, scale)?;
    let round_trips: &[u64] = run.choose(&[1, 2, 10, 20, 40, 60, 80, 100], &[2, 40]);
    let mut figure = Figure {
        id: "buddy-9",
        title: "benefit of a group that begins with empty caches, over the round trip",
        about:
            "The runs of buddy-7 with other links: how much less time than Base a transaction takes, beside the model."
                .into(),
        paper: "Levels off at 60 ms, at 62 % for ten clients.",
        parameters: vec![scale.text(), costs.text()],
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for clients in run.choose(&CLIENTS[..], &CLIENTS[2..]) {
        for milliseconds in round_trips {
            let round_trip = Duration::from_millis(*milliseconds);
            let base = measure(&store, scale, *clients, round_trip, None)?;
            for level in [Level::Strict, Level::Snapshot] {
                let group = measure(&store, scale, *clients, round_trip, Some(level))?;
                let measured = percent_less(group.times.breakdown().total, base.times.breakdown().total);
                let panel = format!("{clients} clients, {}, % less time over the round trip in ms", level.text());
                let case = format!("benefit of {clients} clients at {milliseconds} ms, {}", level.text());
                let model = Some(predict_benefit(&costs, round_trip, &base, &group, level));
                let required = match (clients, milliseconds, level) {
                    (10, 20.., Level::Strict) => Some(TEN_CLIENTS.0),
                    (10, 20.., Level::Snapshot) => Some(TEN_CLIENTS.1),
                    (_, ..=2, _) => Some(0.0),
                    _ => None,
                };
                let point = milliseconds.to_string();
                figure.rows.extend(benefit_rows(&case, (&panel, &point), measured, &[("model", model)], required));
            }
        }
    }
    Ok(figure)
}

/// The benefit that the model gives, in percent.
fn predict_benefit(costs: &Costs, round_trip: Duration, base: &Cold, group: &Cold, level: Level) -> f64 {
    let (round_trip, misses) = (milliseconds(round_trip), base.times.misses());
    percent_less(costs.group(round_trip, misses, group.sharing, level), costs.base(round_trip, misses))
}

/// Where the time of a transaction goes, in a group and without a redirector.
pub(super) fn breakdown_rows(point: &str, group: &Breakdown, base: &Breakdown) -> Vec<Row> {
    let parts = [
        ("time of a transaction", group.total, base.total),
        ("processor", group.compute, base.compute),
        ("commit", group.commit, base.commit),
        ("server fetch", group.server_fetch, base.server_fetch),
        ("peer fetch", group.peer_fetch, base.peer_fetch),
    ];
    // Base has no peer fetches, and a group may have no fetches at all.
    let is_measured = |(_, group, base): &(&str, f64, f64)| *group > 0.0 || *base > 0.0;
    let row =
        |(part, group, base)| base_row(format!("{part}, {point}"), (&format!("{part}, ms"), point), "ms", group, base);
    parts.into_iter().filter(is_measured).map(row).collect()
}

/// What has crossed the link.
fn link_rows(point: &str, group: &Cold, base: &Cold, module: u64) -> Vec<Row> {
    let copies = |cold: &Cold| cold.bytes as f64 / module as f64;
    let messages = |cold: &Cold| cold.messages as f64 / cold.times.transactions as f64;
    let (moved, sent) = ("copies of the module over the link", "messages over the link");
    let case = |what: &str| format!("{what}, {point}");
    vec![
        base_row(case(moved), (moved, point), "copies", copies(group), copies(base)),
        at_most_row(case(moved), (moved, point), "copies", copies(group), COPIES),
        base_row(case(sent), (sent, point), "messages a transaction", messages(group), messages(base)),
    ]
}
