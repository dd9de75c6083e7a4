//! The metrics of a server, for `mortar status` and `/metrics`.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use super::counters::KINDS;
use super::{ServerRole, Shared};

/// How a metric changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// It only grows while the process runs.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number that a server reports.
pub(crate) struct Metric {
    /// Its name, without `mortar_`.
    pub(crate) name: &'static str,
    pub(crate) value: u64,
    pub(crate) kind: MetricKind,
    pub(crate) help: &'static str,
}

impl Metric {
    /// A metric that only grows.
    pub(crate) const fn counter(name: &'static str, value: u64, help: &'static str) -> Self {
        Self { name, value, kind: MetricKind::Counter, help }
    }

    /// A metric that goes up and down.
    pub(crate) const fn gauge(name: &'static str, value: u64, help: &'static str) -> Self {
        Self { name, value, kind: MetricKind::Gauge, help }
    }
}

/// All metrics that have no labels.
pub(crate) fn metrics<R: ServerRole>(server: &Shared<R>) -> Vec<Metric> {
    let metrics = &server.counters;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (half_open, admitted) = server.table.count();
    let mut list = vec![
        Metric::gauge("connections", admitted as u64, "Connections that are admitted."),
        Metric::gauge("connections_half_open", half_open as u64, "Connections that are not authenticated yet."),
        Metric::counter(
            "connections_evicted_total",
            server.table.evicted_count(),
            "Connections closed to make room for others.",
        ),
        Metric::counter("connections_accepted_total", count(&metrics.accepted), "Connections accepted."),
        Metric::counter("connections_refused_total", count(&metrics.refused), "Connections refused."),
        Metric::counter(
            "protocol_violations_total",
            count(&metrics.violations),
            "Connections that were closed because the client broke the protocol.",
        ),
        Metric::gauge(
            "unfinished_input_bytes",
            server.input_budget.used_bytes() as u64,
            "Bytes of frames that are not whole yet.",
        ),
        Metric::gauge(
            "unsent_output_bytes",
            server.output_budget.used_bytes() as u64,
            "Bytes that slow connections have not taken yet.",
        ),
        Metric::counter("received_bytes_total", metrics.sum(|t| &t.received), "Bytes of content received."),
        Metric::counter("sent_bytes_total", metrics.sum(|t| &t.sent), "Bytes of content sent."),
    ];
    if let Some(clock) = server.role.clock() {
        list.extend(clock.metrics());
    }
    list.extend(server.role.metrics(metrics));
    list
}

/// All metrics in Prometheus' text format.
pub(crate) fn prometheus<R: ServerRole>(server: &Shared<R>) -> String {
    let mut text = String::with_capacity(8 << 10);
    for Metric { name, value, kind: shape, help } in metrics(server) {
        write_header(&mut text, name, if shape == MetricKind::Counter { "counter" } else { "gauge" }, help);
        write_line(&mut text, format_args!("mortar_{name} {value}"));
    }
    write_header(&mut text, "requests_total", "counter", "Requests received, by kind.");
    for (kind, name) in KINDS.iter().enumerate() {
        let value = server.counters.sum(|thread| &thread.requests.0[kind]);
        write_line(&mut text, format_args!("mortar_requests_total{{kind=\"{name}\"}} {value}"));
    }
    text
}

fn write_header(text: &mut String, name: &str, shape: &str, help: &str) {
    write_line(text, format_args!("# HELP mortar_{name} {help}"));
    write_line(text, format_args!("# TYPE mortar_{name} {shape}"));
}

fn write_line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
