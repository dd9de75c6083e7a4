//! The figures of a server: what `mortar status` shows and `/metrics` tells.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use super::metrics::{BUCKETS, KINDS};
use super::{Role, Shared};

/// What a figure does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It only grows, from the start of the process on.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number that a server tells of itself.
pub(crate) struct Figure {
    /// Its name, without `mortar_`.
    pub(crate) name: &'static str,
    pub(crate) value: u64,
    pub(crate) shape: Shape,
    pub(crate) help: &'static str,
}

impl Figure {
    /// A figure that only grows.
    pub(crate) const fn counter(name: &'static str, value: u64, help: &'static str) -> Self {
        Self { name, value, shape: Shape::Counter, help }
    }

    /// A figure that goes up and down.
    pub(crate) const fn gauge(name: &'static str, value: u64, help: &'static str) -> Self {
        Self { name, value, shape: Shape::Gauge, help }
    }
}

/// All figures that have no labels.
pub(crate) fn figures<R: Role>(server: &Shared<R>) -> Vec<Figure> {
    let metrics = &server.metrics;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut figures = vec![
        Figure::gauge("connections", count(&metrics.open), "Connections open."),
        Figure::counter("connections_accepted_total", count(&metrics.accepted), "Connections accepted."),
        Figure::counter("connections_refused_total", count(&metrics.refused), "Connections refused."),
        Figure::counter("protocol_violations_total", count(&metrics.violations), "Connections ended for bad bytes."),
        Figure::counter("received_bytes_total", metrics.sum(|t| &t.received), "Bytes of content received."),
        Figure::counter("sent_bytes_total", metrics.sum(|t| &t.sent), "Bytes of content sent."),
        Figure::counter("conflicts_total", metrics.sum(|t| &t.conflicts), "Transactions that met a conflict."),
        Figure::counter("commit_failures_total", metrics.sum(|t| &t.failures), "Transactions that failed."),
    ];
    figures.extend(server.role.figures(metrics));
    figures
}

/// Everything, in Prometheus' text format.
pub(crate) fn prometheus<R: Role>(server: &Shared<R>) -> String {
    let mut text = String::with_capacity(8 << 10);
    for Figure { name, value, shape, help } in figures(server) {
        head(&mut text, name, if shape == Shape::Counter { "counter" } else { "gauge" }, help);
        line(&mut text, format_args!("mortar_{name} {value}"));
    }
    head(&mut text, "requests_total", "counter", "Requests received, by kind.");
    for (kind, name) in KINDS.iter().enumerate() {
        let value = server.metrics.sum(|thread| &thread.requests.0[kind]);
        line(&mut text, format_args!("mortar_requests_total{{kind=\"{name}\"}} {value}"));
    }
    head(&mut text, "commit_seconds", "histogram", "From the arrival of a transaction to its outcome.");
    let mut below = 0;
    for bucket in 0..BUCKETS {
        below += server.metrics.sum(|thread| &thread.latency[bucket]);
        if bucket + 1 < BUCKETS {
            let bound = (1_u64 << bucket) as f64 / 1e6;
            line(&mut text, format_args!("mortar_commit_seconds_bucket{{le=\"{bound}\"}} {below}"));
        }
    }
    let sum = server.metrics.sum(|thread| &thread.latency_us) as f64 / 1e6;
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
