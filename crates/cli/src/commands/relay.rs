//! `mortar relay`: a slow link in front of a server.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use relay::{Address, Config, Counters, CutSchedule, LinkConfig, Relay, StartError, Traffic};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time;
use wire::transport::{Address as WireAddress, beyond_loopback};

use crate::connection::LISTEN;
use crate::failure::{Exit, Failure, Result};
use crate::link_values::{parse_cut, parse_duration, parse_loss, parse_rate};
use crate::output::{HumanBytes, HumanCount, Output, Report, pluralize, warn};
use crate::progress::{HumanDuration, rate};
use crate::serving::Signals;

/// How often the line on the terminal and the file of the report are written.
const INTERVAL: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  mortar relay --round-trip 40ms                     in front of `mortar dev`, at 127.0.0.1:7000
  mortar --server mortar://127.0.0.1:7000 ls         in another terminal
  mortar relay --to 127.0.0.1:6680 --delay 20ms --jitter 2ms --rate 10MB --loss 1%
  mortar relay --delay 5ms --cut 30s/5s              silent for 5 seconds every 30 seconds
  mortar relay --listen 127.0.0.1:0 --delay 20ms --report link.json --json
  mortar relay --listen unix:/tmp/slow.sock --to unix:mortar-data/mortar.sock --delay 20ms

SIGUSR1 cuts the link; a second one ends that cut. Ctrl-C or SIGTERM ends the relay, breaks its connections, and prints what \
crossed the link.";

/// Forward connections to a server as a slow link would: with delay, jitter, a rate, losses and cuts
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RelayCommand {
    /// Clients connect here: HOST:PORT or unix:PATH; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    listen: Address,
    /// The server: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    to: Address,
    /// The delay of each direction, such as 20ms; a round trip takes twice as long
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    delay: Duration,
    /// The delay of both directions together, in place of --delay
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "delay")]
    round_trip: Option<Duration>,
    /// Vary the delay at random by at most this; bytes of a connection stay in order
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    jitter: Duration,
    /// Bytes per second in each direction, such as 10MB or 100Mbit, shared by all connections [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<NonZeroU64>,
    /// Lose this share of the chunks, such as 1%: they arrive a round trip later, and at least 200 ms
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_loss)]
    loss: f64,
    /// Cut the link periodically, such as 30s/5s: every 30 seconds for 5 seconds. May be repeated
    #[arg(long, value_name = "EVERY/FOR", value_parser = parse_cut)]
    cut: Vec<CutSchedule>,
    /// Make random choices repeatable
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Write what crossed the link to this file, as JSON, once a second
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Allow an address that other machines can reach
    #[arg(long)]
    insecure: bool,
}

impl RelayCommand {
    fn config(&self) -> Config {
        let link = LinkConfig {
            delay: self.round_trip.map_or(self.delay, |round_trip| round_trip / 2),
            jitter: self.jitter,
            rate: self.rate,
            loss: self.loss,
            cuts: self.cut.clone(),
        };
        Config { link, seed: self.seed, ..Config::new(self.listen.clone(), self.to.clone()) }
    }
}

/// The report of a relay that has started.
#[derive(Serialize)]
struct Ready {
    /// The addresses on which it listens, as those of `mortar node`.
    addresses: Vec<String>,
    to: String,
    round_trip_us: u64,
    pid: u32,
}

impl Report for Ready {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let round_trip = HumanDuration(Duration::from_micros(self.round_trip_us));
        writeln!(out, "Relay at {} to {}, round trip {round_trip}. Ctrl-C ends it.", self.addresses.join(", "), self.to)
    }
}

impl Report for Counters {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let direction = |traffic: &Traffic| {
            let (bytes, losses) = (HumanBytes(traffic.bytes), HumanCount(traffic.losses));
            format!("{bytes} in {}, {losses} lost", pluralize(traffic.chunks, "chunk", "chunks"))
        };
        let time = HumanDuration(Duration::from_secs_f64(self.seconds));
        writeln!(out, "{} in {time}", connections(self))?;
        writeln!(out, "  to the server    {}", direction(&self.upstream))?;
        writeln!(out, "  from the server  {}", direction(&self.downstream))
    }
}

/// `3 connections, 1 of them open, 2 failed`.
fn connections(counters: &Counters) -> String {
    let mut text = pluralize(counters.connections, "connection", "connections");
    if counters.open_connections > 0 {
        text += &format!(", {} open", HumanCount(counters.open_connections));
    }
    if counters.failed_connections > 0 {
        text += &format!(", {} failed", HumanCount(counters.failed_connections));
    }
    text
}

pub(crate) fn run(args: &RelayCommand, output: &mut Output) -> Result {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::file("cannot start", &e))?;
    runtime.block_on(serve(args, output))
}

async fn serve(args: &RelayCommand, output: &mut Output) -> Result {
    // The handlers are there before a program can know the process.
    let mut signals = Signals::listen()?;
    let toggled = signal(SignalKind::user_defined1());
    let mut toggled = toggled.map_err(|error| Failure::file("cannot listen for signals", &error))?;
    check_exposure(args).await?;
    let report = args.report.as_deref().map(ReportFile::new).transpose()?;
    let relay = Relay::start(args.config()).map_err(explain_start)?;
    let mut monitor = Monitor::new(report, output);
    monitor.write_report(&relay.counters())?;
    output.announce(&ready_report(args, &relay));
    let mut interval = time::interval(INTERVAL);
    let mut is_cut_by_hand = false;
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = toggled.recv() => {
                is_cut_by_hand = !is_cut_by_hand;
                relay.set_cut(is_cut_by_hand);
            }
            _ = interval.tick() => {}
        }
        monitor.show(relay.counters());
    }
    let counters = relay.shutdown();
    monitor.end();
    output.print(&counters)?;
    monitor.write_report(&counters)
}

/// Refuses an address by which other machines reach a server that trusts its own.
async fn check_exposure(args: &RelayCommand) -> Result {
    let Address::Tcp(host) = &args.listen else { return Ok(()) };
    let exposed = beyond_loopback(&WireAddress::Tcp(host.clone())).await;
    let exposed = exposed.map_err(|error| Failure::file(format!("cannot find out where {host} is"), &error))?;
    if exposed.is_empty() || args.insecure {
        return Ok(());
    }
    let message = format!("other machines can reach {host}, and through it {} as if they were this machine", args.to);
    Err(Failure::with(Exit::Denied, "denied", message).hint("Listen on loopback or a Unix socket, or give --insecure."))
}

fn explain_start(error: StartError) -> Failure {
    match error {
        StartError::Invalid(message) => Failure::usage(message),
        StartError::Listen(address, error) => Failure::file(format!("cannot listen at {address}"), &error)
            .hint("Choose another address with --listen HOST:PORT; port 0 takes a free one."),
        StartError::System(error) => Failure::file("cannot start", &error),
    }
}

fn ready_report(args: &RelayCommand, relay: &Relay) -> Ready {
    let round_trip = 2 * args.config().link.delay;
    Ready {
        addresses: vec![relay.address().to_string()],
        to: args.to.to_string(),
        round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
        pid: std::process::id(),
    }
}

/// Shows the counters while the relay runs: on the terminal, in the file, and failures as warnings.
struct Monitor {
    json: bool,
    line: ProgressBar,
    report: Option<ReportFile>,
    /// Whether the file could be written the last time.
    is_report_written: bool,
    before: Counters,
}

impl Monitor {
    fn new(report: Option<ReportFile>, output: &Output) -> Self {
        let is_hidden = output.hides_progress() || !io::stderr().is_terminal();
        let target = if is_hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let line = ProgressBar::with_draw_target(None, target);
        // The template is a constant; an invalid one is ignored.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            line.set_style(style);
        }
        Self { json: output.json(), line, report, is_report_written: true, before: Counters::default() }
    }

    /// Shows the current counters.
    fn show(&mut self, counters: Counters) {
        self.warn_of_failures(&counters);
        self.line.set_message(line_text(&self.before, &counters));
        self.line.tick();
        let written = self.write_report(&counters);
        if let (Err(failure), true) = (&written, self.is_report_written) {
            self.line.suspend(|| warn(self.json, "report", failure.message()));
        }
        self.is_report_written = written.is_ok();
        self.before = counters;
    }

    fn warn_of_failures(&self, counters: &Counters) {
        let Some(failure) = &counters.last_failure else { return };
        if counters.failed_connections != self.before.failed_connections || self.before.last_failure.is_none() {
            self.line.suspend(|| warn(self.json, "connection", failure));
        }
    }

    fn write_report(&self, counters: &Counters) -> Result {
        self.report.as_ref().map_or(Ok(()), |report| report.write(counters))
    }

    /// Removes the line.
    fn end(&self) {
        self.line.finish_and_clear();
    }
}

/// `2 connections, 1 open; up 12.0 MB, 1.2 MB/s; down 3.0 MB, 0 B/s`.
fn line_text(before: &Counters, now: &Counters) -> String {
    let time = Duration::from_secs_f64((now.seconds - before.seconds).max(0.0));
    let direction = |before: &Traffic, now: &Traffic| {
        let speed = rate(now.bytes.saturating_sub(before.bytes), time);
        format!("{}, {}/s", HumanBytes(now.bytes), HumanBytes(speed))
    };
    let (up, down) = (direction(&before.upstream, &now.upstream), direction(&before.downstream, &now.downstream));
    let cut = if now.cut { "; the link is cut" } else { "" };
    format!("{}; up {up}; down {down}{cut}", connections(now))
}

/// A file that always has one complete report.
struct ReportFile {
    path: PathBuf,
    /// The next report, until it replaces the file.
    next: PathBuf,
}

impl ReportFile {
    fn new(path: &Path) -> Result<Self> {
        let (Some(name), false) = (path.file_name(), path.exists() && !path.is_file()) else {
            let message = format!("--report: {} is no regular file", path.display());
            return Err(Failure::usage(message).hint("Name a file that the relay may replace."));
        };
        let mut next_name = name.to_owned();
        next_name.push(".next");
        Ok(Self { path: path.to_owned(), next: path.with_file_name(next_name) })
    }

    fn write(&self, counters: &Counters) -> Result {
        let cannot =
            |error: io::Error| Failure::file(format!("cannot write the report {}", self.path.display()), &error);
        let line = serde_json::to_string(counters).map_err(|e| Failure::new(format!("cannot print as JSON: {e}")))?;
        File::create(&self.next).and_then(|mut file| writeln!(file, "{line}")).map_err(cannot)?;
        fs::rename(&self.next, &self.path).map_err(cannot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        Counters {
            seconds: 12.0,
            connections: 3,
            open_connections: 1,
            failed_connections: 0,
            cut: false,
            upstream: Traffic { bytes: 12_000_000, chunks: 1200, losses: 3 },
            downstream: Traffic { bytes: 10, chunks: 1, losses: 0 },
            last_failure: None,
        }
    }

    #[test]
    fn the_report_reads_well() {
        let mut text = Vec::new();
        counters().write_text(&mut text).unwrap();
        let expected = "3 connections, 1 open in 12 s\n  to the server    12.0 MB in 1,200 chunks, 3 lost\n  \
                        from the server  10 B in 1 chunk, 0 lost\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn the_line_shows_speeds_since_the_last_one() {
        let before = counters();
        let upstream = Traffic { bytes: 14_000_000, ..before.upstream };
        let now = Counters { seconds: 13.0, upstream, cut: true, failed_connections: 1, ..counters() };
        assert_eq!(
            line_text(&before, &now),
            "3 connections, 1 open, 1 failed; up 14.0 MB, 2.0 MB/s; down 10 B, 0 B/s; the link is cut"
        );
    }

    #[test]
    fn a_report_replaces_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("link.json");
        let report = ReportFile::new(&path).unwrap();
        report.write(&Counters::default()).unwrap();
        report.write(&counters()).unwrap();
        assert_eq!(serde_json::from_slice::<Counters>(&fs::read(&path).unwrap()).unwrap(), counters());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_report_replaces_no_directory_and_no_device() {
        for path in ["/", "/tmp", "/dev/null"] {
            assert_eq!(ReportFile::new(Path::new(path)).err().unwrap().exit(), Exit::Usage, "{path}");
        }
    }
}
