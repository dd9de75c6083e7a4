//! Figures 10 to 12: three readers and a writer with full caches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::cold::breakdown_rows;
use super::costs::{self, milliseconds};
use super::model::Costs;
use super::site::{Redirector, Scale, Site, Store};
use super::workload::{Level, Member, Times, run_all, sum};
use super::{benefit_rows, percent_less};
use crate::Result;
use crate::figure::{Figure, Shape};
use crate::progress;
use crate::run::Run;

const READERS: usize = 3;
/// The paper's benefits at 40 ms and what is required of us, strictly serializable, in percent: the group of readers, and that of the writer.
const READER_GROUP: (f64, f64) = (30.0, 36.0);
const WRITER_GROUP: (f64, f64) = (62.0, 62.0);
/// What is required at group snapshots.
const AT_SNAPSHOTS: f64 = 90.0;
/// The least of the paper's benefits of the writer's group over all latencies.
const WRITER_LEAST: f64 = 44.0;

/// How the four clients form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    /// No redirector.
    None,
    /// The writer, and a group of three readers.
    Readers,
    /// A group of the writer and two readers, and a group of one reader.
    Writer,
}

impl Groups {
    fn text(self) -> &'static str {
        match self {
            Self::None => "base",
            Self::Readers => "reader group",
            Self::Writer => "writer group",
        }
    }

    /// The clients at the site that is measured, where the writer is, if there, the last one.
    fn readers_at_first_site(self) -> usize {
        match self {
            Self::None | Self::Readers => READERS,
            Self::Writer => READERS - 1,
        }
    }
}

/// What the readers at the first site have measured.
struct Hot {
    times: Times,
    sharing: f64,
}

/// Runs the four clients: first without delay until all caches are full, then with it.
fn measure(store: &Store, transactions: usize, round_trip: Duration, groups: Groups, level: Level) -> Result<Hot> {
    let name =
        |site: &str| format!("hot-{}-{}-{site}", groups.text().replace(' ', "-"), level.text().replace(' ', "-"));
    let site = |place: &str| match groups {
        Groups::None => store.site(Duration::ZERO),
        Groups::Readers | Groups::Writer => store.group_site(Duration::ZERO, &name(place)),
    };
    let sites = [site("first")?, site("second")?];
    let readers = groups.readers_at_first_site();
    let [first, second] = &sites;
    let writer_site = if groups == Groups::Readers { second } else { first };
    let mut members = Member::connect_many(store, first, readers, level)?;
    for number in readers..READERS {
        members.push(Member::connect(store, second, number as u64, level)?);
    }
    members.push(Member::connect(store, writer_site, READERS as u64, Level::Strict)?);
    run_all(&mut members, |_, member| member.warm_up())?;
    sites.iter().for_each(|site| site.set_round_trip(round_trip));
    // Until the writer has changed what the readers will read, as often as it does later.
    run_together(&mut members, transactions / 4, round_trip)?;
    let before = fetch_counts(first)?;
    let times = sum(run_together(&mut members, transactions, round_trip)?.into_iter().take(readers));
    let after = fetch_counts(first)?;
    progress::line(format_args!(
        "buddy: hot, {}, {}, {:.0} ms: {:.1} ms a transaction, {:.2} misses, {} conflicts in {}",
        groups.text(),
        level.text(),
        milliseconds(round_trip),
        times.breakdown().total,
        times.misses(),
        times.conflicts,
        times.transactions
    ));
    Ok(Hot { times, sharing: (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64 })
}

/// Pages that members have asked for, and those that crossed the link.
fn fetch_counts(site: &Site) -> Result<(u64, u64)> {
    let counts = site.redirector.as_ref().map(Redirector::counts).transpose()?.unwrap_or_default();
    Ok((counts.fetches, counts.fetched_above))
}

/// Runs the readers' transactions, and the writer's as long as a reader runs.
fn run_together(members: &mut [Member], transactions: usize, round_trip: Duration) -> Result<Vec<Times>> {
    let writer = members.len() - 1;
    let running = AtomicUsize::new(writer);
    run_all(members, |number, member| {
        if number != writer {
            let times = member.read(transactions, round_trip);
            running.fetch_sub(1, Ordering::Relaxed);
            return times;
        }
        let mut times = Times::default();
        while running.load(Ordering::Relaxed) > 0 {
            times += member.read_or_write(round_trip)?;
        }
        Ok(times)
    })
}

/// The benefit that the model gives, in percent.
fn predict_benefit(
    costs: &Costs,
    round_trip: Duration,
    base: &Hot,
    group: &Hot,
    (groups, level): (Groups, Level),
) -> f64 {
    let round_trip = milliseconds(round_trip);
    let misses = if groups == Groups::Writer { 0.0 } else { group.times.misses() };
    percent_less(costs.group(round_trip, misses, group.sharing, level), costs.base(round_trip, base.times.misses()))
}

const ABOUT: &str = "Three readers and a writer, which changes all atomic parts of a composite part in every second of its transactions. All \
                     caches are full at the beginning. In the reader group the readers have a redirector and the writer has another one; in the \
                     writer group two readers and the writer share one. Base is the same program without redirectors. Times are the means of the \
                     readers' transactions, in the writer group of those at the writer's site. At group snapshots only the readers use them. The model has \
                     the costs of buddy-t1 and t2, and the misses of each system.";

/// Figures 10 and 11: where the time goes at 40 and 80 ms.
pub(super) fn breakdown(run: &Run) -> Result<Figure> {
    let scale = Scale::new(run);
    let store = Store::start(run, scale)?;
    let costs = costs::measure_costs(&store, scale)?;
    let mut figure = new_figure("buddy-10", "a group with full caches and a writer", Shape::Bars, scale, &costs);
    figure.paper = "30 % less time in the reader group and 62 % in the writer group, at 40 ms.";
    for round_trip in [40, 80].map(Duration::from_millis) {
        let base = measure(&store, scale.transactions, round_trip, Groups::None, Level::Strict)?;
        for (groups, (paper, strict)) in [(Groups::Readers, READER_GROUP), (Groups::Writer, WRITER_GROUP)] {
            for (level, required) in [(Level::Strict, strict), (Level::Snapshot, AT_SNAPSHOTS)] {
                let group = measure(&store, scale.transactions, round_trip, groups, level)?;
                let point = format!("{} at {:.0} ms, {}", groups.text(), milliseconds(round_trip), level.text());
                figure.rows.extend(breakdown_rows(&point, &group.times.breakdown(), &base.times.breakdown()));
                let paper = Some(paper).filter(|_| level == Level::Strict && round_trip.as_millis() == 40);
                let model = predict_benefit(&costs, round_trip, &base, &group, (groups, level));
                let measured = percent_less(group.times.breakdown().total, base.times.breakdown().total);
                let rivals = [("model", Some(model)), ("paper", paper)];
                let case = format!("benefit of the {point}");
                figure.rows.extend(benefit_rows(&case, ("benefit", &point), measured, &rivals, Some(required)));
            }
        }
    }
    Ok(figure)
}

/// Figure 12: the benefit over the latency.
pub(super) fn benefit(run: &Run) -> Result<Figure> {
    let scale = Scale::new(run);
    let store = Store::start(run, scale)?;
    let costs = costs::measure_costs(&store, scale)?;
    let title = "benefit of a group with full caches and a writer, over the round trip";
    let mut figure = new_figure("buddy-12", title, Shape::Lines, scale, &costs);
    figure.paper = "44 to 64 % in the writer group, over all latencies.";
    let round_trips: &[u64] = run.choose(&[1, 2, 10, 20, 40, 60, 80, 100], &[2, 40]);
    for milliseconds in round_trips {
        let round_trip = Duration::from_millis(*milliseconds);
        let base = measure(&store, scale.transactions, round_trip, Groups::None, Level::Strict)?;
        for groups in [Groups::Readers, Groups::Writer] {
            for level in [Level::Strict, Level::Snapshot] {
                let group = measure(&store, scale.transactions, round_trip, groups, level)?;
                let measured = percent_less(group.times.breakdown().total, base.times.breakdown().total);
                let panel = format!("{}, {}, % less time over the round trip in ms", groups.text(), level.text());
                let case = format!("benefit of the {} at {milliseconds} ms, {}", groups.text(), level.text());
                let model = Some(predict_benefit(&costs, round_trip, &base, &group, (groups, level)));
                let required = Some(WRITER_LEAST).filter(|_| groups == Groups::Writer);
                let point = milliseconds.to_string();
                figure.rows.extend(benefit_rows(&case, (&panel, &point), measured, &[("model", model)], required));
            }
        }
    }
    Ok(figure)
}

fn new_figure(id: &'static str, title: &'static str, shape: Shape, scale: Scale, costs: &Costs) -> Figure {
    Figure {
        id,
        title,
        about: ABOUT.into(),
        paper: "",
        parameters: vec![scale.text(), costs.text()],
        shape,
        rows: Vec::new(),
        skipped: Vec::new(),
    }
}
