//! The figures of a brick: what `mortar status` shows and `/metrics` tells.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::brick::Shared;
use crate::metrics::{BUCKETS, KINDS};

/// What a figure does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It only grows, from the start of the process on.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number that a brick tells of itself.
pub(crate) struct Figure {
    /// Its name, without `mortar_`.
    pub(crate) name: &'static str,
    pub(crate) value: u64,
    shape: Shape,
    help: &'static str,
}

/// All figures that have no labels.
pub(crate) fn figures(brick: &Shared) -> Vec<Figure> {
    use Shape::{Counter, Gauge};
    let (metrics, store) = (&brick.metrics, brick.store.status());
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let figure = |name, value, shape, help| Figure { name, value, shape, help };
    vec![
        figure("connections", count(&metrics.open), Gauge, "Connections open."),
        figure("connections_accepted_total", count(&metrics.accepted), Counter, "Connections accepted."),
        figure("connections_refused_total", count(&metrics.refused), Counter, "Connections refused."),
        figure("protocol_violations_total", count(&metrics.violations), Counter, "Connections ended for bad bytes."),
        figure("received_bytes_total", metrics.sum(|t| &t.received), Counter, "Bytes of content received."),
        figure("sent_bytes_total", metrics.sum(|t| &t.sent), Counter, "Bytes of content sent."),
        figure("conflicts_total", metrics.sum(|t| &t.conflicts), Counter, "Transactions that met a conflict."),
        figure("commit_failures_total", metrics.sum(|t| &t.failures), Counter, "Transactions that failed."),
        figure("store_version", store.version, Counter, "The newest durable position of the log."),
        figure("store_commits_total", store.commits, Counter, "Transactions committed."),
        figure("store_forces_total", store.forces, Counter, "Forces of the log."),
        figure("store_logged_bytes_total", store.logged_bytes, Counter, "Bytes written to the log."),
        figure("store_force_microseconds_total", store.force_us, Counter, "Time spent in writing and forcing the log."),
        figure("store_waits_total", store.waits, Counter, "Transactions that waited for room in the buffer."),
        figure("store_installs_total", store.installs, Counter, "Batches installed in the B-tree."),
        figure("store_installed_rows_total", store.installed_rows, Counter, "Rows installed in the B-tree."),
        figure("store_install_microseconds_total", store.install_us, Counter, "Time spent in installing."),
        figure("store_buffer_bytes", store.mob_bytes, Gauge, "Bytes of logged changes in memory."),
        figure("store_buffer_limit_bytes", store.mob_limit, Gauge, "Bytes of changes that may be in memory."),
        figure("store_log_bytes", store.log_bytes, Gauge, "Bytes of log segments."),
        figure("store_tree_bytes", store.tree_bytes, Gauge, "Bytes of the B-tree."),
        figure("store_blob_bytes", store.blob_bytes, Gauge, "Bytes of blob files, holes included."),
        figure("store_snapshots", store.snapshots, Gauge, "Snapshots and reads under way."),
        figure("store_uploads", store.uploads, Gauge, "Unfinished uploads."),
        figure("store_incarnation", store.incarnation, Counter, "How often the store was opened."),
        figure("store_disk_full", u64::from(store.disk_full), Gauge, "Whether the disk was found full."),
        figure("store_in_memory", u64::from(store.in_memory), Gauge, "Whether the store is in memory only."),
    ]
}

/// Everything, in Prometheus' text format.
pub(crate) fn prometheus(brick: &Shared) -> String {
    let mut text = String::with_capacity(8 << 10);
    for Figure { name, value, shape, help } in figures(brick) {
        head(&mut text, name, if shape == Shape::Counter { "counter" } else { "gauge" }, help);
        line(&mut text, format_args!("mortar_{name} {value}"));
    }
    head(&mut text, "requests_total", "counter", "Requests received, by kind.");
    for (kind, name) in KINDS.iter().enumerate() {
        let value = brick.metrics.sum(|thread| &thread.requests[kind]);
        line(&mut text, format_args!("mortar_requests_total{{kind=\"{name}\"}} {value}"));
    }
    head(&mut text, "commit_seconds", "histogram", "From the arrival of a transaction to its outcome.");
    let mut below = 0;
    for bucket in 0..BUCKETS {
        below += brick.metrics.sum(|thread| &thread.latency[bucket]);
        if bucket + 1 < BUCKETS {
            let bound = (1_u64 << bucket) as f64 / 1e6;
            line(&mut text, format_args!("mortar_commit_seconds_bucket{{le=\"{bound}\"}} {below}"));
        }
    }
    let sum = brick.metrics.sum(|thread| &thread.latency_us) as f64 / 1e6;
    line(&mut text, format_args!("mortar_commit_seconds_bucket{{le=\"+Inf\"}} {below}"));
    line(&mut text, format_args!("mortar_commit_seconds_sum {sum}"));
    line(&mut text, format_args!("mortar_commit_seconds_count {below}"));
    text
}

fn head(text: &mut String, name: &str, shape: &str, help: &str) {
    line(text, format_args!("# HELP mortar_{name} {help}"));
    line(text, format_args!("# TYPE mortar_{name} {shape}"));
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
