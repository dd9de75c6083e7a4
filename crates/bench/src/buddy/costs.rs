//! Tables 1 and 2: what fetches and commits cost in a local network.

use std::time::{Duration, Instant};

use client::AdminClient;

use super::model::Costs;
use super::site::{Scale, Site, Store};
use super::workload::{Level, Member, Times, run_all, sum};
use super::{at_most_row, base_row};
use crate::Result;
use crate::figure::{Figure, Shape};
use crate::mortar::server::runtime;
use crate::process::Address;
use crate::progress;
use crate::run::Run;

/// Round trips of a request that does nothing.
const CROSSINGS: u32 = 2_000;
/// Transactions that write, of each client.
const WRITES: usize = 50;
/// The numbers of clients of table 1.
const CLIENTS: [usize; 2] = [3, 5];

impl Costs {
    pub(super) fn text(&self) -> String {
        let Self { fetch_base, fetch_group, redirect, commit_base, commit_group, compute } = self;
        format!(
            "model, ms: server fetch {fetch_base:.3} (Base), {fetch_group:.3}; peer fetch {redirect:.3}; commit {commit_base:.3} (Base), \
             {commit_group:.3}; processor {compute:.3} a transaction"
        )
    }
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The mean wait for a page, in milliseconds.
fn fetch_time(times: &Times) -> f64 {
    let count = times.server_fetches + times.peer_fetches;
    milliseconds(times.server_fetch + times.peer_fetch) / count.max(1) as f64
}

/// Measures the parameters of the model, with one client at a time and no delay.
pub(super) fn measure_costs(store: &Store, scale: Scale) -> Result<Costs> {
    let alone = |site: &Site| Member::connect(store, site, 0, Level::Strict)?.read(scale.transactions, Duration::ZERO);
    let base = alone(&store.site(Duration::ZERO)?)?;
    let site = store.group_site(Duration::ZERO, "costs")?;
    // The first client stays, and helps the second one.
    let mut first = Member::connect(store, &site, 0, Level::Strict)?;
    let group = first.read(scale.transactions, Duration::ZERO)?;
    let helped = alone(&site)?;
    drop(first);
    let costs = Costs {
        fetch_base: fetch_time(&base),
        fetch_group: fetch_time(&group),
        redirect: fetch_time(&helped),
        commit_base: base.breakdown().commit,
        commit_group: group.breakdown().commit,
        compute: base.breakdown().compute,
    };
    progress::line(format_args!("buddy: {}", costs.text()));
    Ok(costs)
}

/// Bytes that cross the link when one client reads all composite parts.
pub(super) fn bytes_of_module(store: &Store) -> Result<u64> {
    let site = store.site(Duration::ZERO)?;
    let member = Member::connect(store, &site, 0, Level::Strict)?;
    let before = site.traffic().downstream.bytes;
    member.warm_up()?;
    Ok(site.traffic().downstream.bytes - before)
}

/// The mean time of a request that does nothing, in milliseconds.
fn crossing_time(address: &Address) -> Result<f64> {
    runtime()?.block_on(async {
        let client = AdminClient::connect(&format!("mortar://{address}/main")).await?;
        let begun = Instant::now();
        for _ in 0..CROSSINGS {
            client.ping().await?;
        }
        Ok(milliseconds(begun.elapsed() / CROSSINGS))
    })
}

/// Measures the two tables.
pub(super) fn measure(run: &Run) -> Result<Figure> {
    let scale = Scale::new(run);
    let store = Store::start(run, scale)?;
    let mut figure = Figure {
        id: "buddy-t1",
        title: "costs of a redirector in a local network",
        about: "Fetches and commits of clients that begin with empty caches, with and without a redirector, without delay (through the relay, \
                as in all figures); a fetch from another member; and a request that the redirector answers itself. All clients run at the same \
                time, on the cores of one machine."
            .into(),
        paper: "Fetch 1.3 and 1.4 ms without a redirector (3 and 5 clients), 2.4 and 2.6 ms with one; commit 2.5 and 5.5 ms, 2.4 and \
                5.7 ms; peer fetch 1.8 to 5.5 ms; redirector crossing 0.16 ms.",
        parameters: vec![scale.text()],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for clients in CLIENTS {
        let base = commits_and_fetches(&store, scale, clients, &store.site(Duration::ZERO)?)?;
        let site = store.group_site(Duration::ZERO, &format!("costs-{clients}"))?;
        let group = commits_and_fetches(&store, scale, clients, &site)?;
        for (what, group, base) in [
            ("page fetch", group.fetch, base.fetch),
            ("commit of a transaction that reads", group.read_commit, base.read_commit),
            ("commit of a transaction that writes", group.write_commit, base.write_commit),
        ] {
            let point = format!("{what}, {clients} clients");
            figure.rows.push(base_row(format!("{point} at the same time"), ("ms", &point), "ms", group, base));
        }
    }
    let costs = measure_costs(&store, scale)?;
    let site = store.group_site(Duration::ZERO, "crossing")?;
    let redirector = site.redirector.as_ref().ok_or("a site without a redirector")?;
    let crossing = crossing_time(&redirector.address)?;
    for (what, time, required) in [("redirector crossing", crossing, 0.15), ("peer fetch", costs.redirect, 0.5)] {
        figure.rows.push(at_most_row(format!("{what}, one client"), ("ms", what), "ms", time, required));
    }
    for (what, group, base) in
        [("server fetch", costs.fetch_group, costs.fetch_base), ("commit", costs.commit_group, costs.commit_base)]
    {
        figure.rows.push(base_row(format!("{what}, one client"), ("ms", what), "ms", group, base));
    }
    Ok(figure)
}

/// Mean times in milliseconds.
struct MeanTimes {
    fetch: f64,
    read_commit: f64,
    write_commit: f64,
}

fn commits_and_fetches(store: &Store, scale: Scale, clients: usize, site: &Site) -> Result<MeanTimes> {
    let mut members = Member::connect_many(store, site, clients, Level::Strict)?;
    let reads = sum(run_all(&mut members, |_, member| member.read(scale.transactions, Duration::ZERO))?);
    let writes = run_all(&mut members, |_, member| {
        let mut times = Times::default();
        for _ in 0..WRITES {
            times += member.write(Duration::ZERO)?;
        }
        Ok(times)
    })?;
    Ok(MeanTimes {
        fetch: fetch_time(&reads),
        read_commit: reads.breakdown().commit,
        write_commit: sum(writes).breakdown().commit,
    })
}
