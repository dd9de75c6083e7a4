//! Progress of long work: a bar on a terminal, a line every few seconds elsewhere, nothing with `--json`.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::{HumanBytes, HumanCount, Output};

/// How often the bar is drawn.
const BAR_INTERVAL: Duration = Duration::from_millis(100);
/// The interval between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of one piece of work; cheap to share.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Shared>);

struct Shared {
    title: &'static str,
    /// The unit of the counts.
    unit: &'static str,
    started: Instant,
    /// How long the work has taken, if another process does it, in milliseconds; 0 if it was begun with this.
    worked_ms: AtomicU64,
    bytes: AtomicU64,
    objects: AtomicU64,
    total_bytes: AtomicU64,
    total_objects: AtomicU64,
    ended: AtomicBool,
    display: DisplayMode,
}

enum DisplayMode {
    Bar(ProgressBar),
    Lines,
    Hidden,
}

impl Progress {
    /// The progress of work with this title ("importing"), of unknown size until [`Progress::set_total`] is called.
    pub(crate) fn start(title: &'static str, output: &Output) -> Self {
        Self::start_with_unit(title, "objects", output)
    }

    /// The progress of work that is not counted in objects.
    pub(crate) fn start_with_unit(title: &'static str, unit: &'static str, output: &Output) -> Self {
        let face = if output.hides_progress() {
            DisplayMode::Hidden
        } else if io::stderr().is_terminal() {
            DisplayMode::Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))
        } else {
            DisplayMode::Lines
        };
        let progress = Self(Arc::new(Shared {
            title,
            unit,
            started: Instant::now(),
            worked_ms: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            total_objects: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            display: face,
        }));
        progress.style();
        progress.draw_in_background();
        progress
    }

    /// Sets the total amount; 0 bytes if only objects are counted, and vice versa.
    pub(crate) fn set_total(&self, bytes: u64, objects: u64) {
        let bytes_before = self.0.total_bytes.swap(bytes, Ordering::Relaxed);
        let objects_before = self.0.total_objects.swap(objects, Ordering::Relaxed);
        // Called repeatedly by some work.
        if (bytes, objects) != (bytes_before, objects_before) {
            self.style();
        }
    }

    /// Adds completed work.
    pub(crate) fn advance(&self, bytes: u64, objects: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.objects.fetch_add(objects, Ordering::Relaxed);
    }

    /// Subtracts bytes that have to be repeated.
    pub(crate) fn retreat(&self, bytes: u64) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the completed work.
    pub(crate) fn set_done(&self, bytes: u64, objects: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.0.objects.store(objects, Ordering::Relaxed);
    }

    /// Sets how long another process has worked: the time left and the speed are computed from that.
    pub(crate) fn set_worked(&self, worked: Duration) {
        self.0.worked_ms.store(worked.as_millis() as u64, Ordering::Relaxed);
    }

    /// How long the work has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    /// Calls `write`, which writes to the error stream, without disturbing the bar.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        match &self.0.display {
            DisplayMode::Bar(bar) => bar.suspend(write),
            DisplayMode::Lines | DisplayMode::Hidden => write(),
        }
    }

    /// Removes the bar; the command reports the result.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Starts the thread that draws, so that advancing costs only two additions.
    fn draw_in_background(&self) {
        let interval = match self.0.display {
            DisplayMode::Bar(_) => BAR_INTERVAL,
            DisplayMode::Lines => LINE_INTERVAL,
            DisplayMode::Hidden => return,
        };
        let shared = Arc::downgrade(&self.0);
        thread::spawn(move || {
            loop {
                thread::sleep(interval);
                match shared.upgrade() {
                    Some(shared) if !shared.ended.load(Ordering::Relaxed) => shared.draw(),
                    _ => return,
                }
            }
        });
    }

    fn style(&self) {
        let DisplayMode::Bar(bar) = &self.0.display else { return };
        let (bytes, objects) = self.0.totals();
        let (total, template) = match (bytes, objects) {
            (0, 0) => (None, "{spinner} {prefix}  {done}  {elapsed}"),
            (0, objects) => (Some(objects), "{prefix} {bar:24} {done}  {left}"),
            (bytes, _) => (Some(bytes), "{prefix} {bar:24} {done}  {left}"),
        };
        let done = Arc::downgrade(&self.0);
        let left = Arc::downgrade(&self.0);
        // The templates are constants; an invalid one is ignored, and the bar keeps its default style.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let style = style
                .with_key("done", move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let _ = done.upgrade().map(|shared| out.write_str(&shared.done_text()));
                })
                .with_key("left", move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let _ = left.upgrade().map(|shared| out.write_str(&shared.left_text()));
                })
                .progress_chars("=> ");
            bar.set_style(style);
        }
        bar.set_prefix(self.0.title);
        if let Some(total) = total {
            bar.set_length(total);
        }
    }
}

/// Removes the bar of work that was aborted, such as by Ctrl-C.
impl Drop for Shared {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        if let DisplayMode::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }

    /// How long the work has taken.
    fn work_time(&self) -> Duration {
        match self.worked_ms.load(Ordering::Relaxed) {
            0 => self.started.elapsed(),
            worked => Duration::from_millis(worked),
        }
    }

    fn totals(&self) -> (u64, u64) {
        (self.total_bytes.load(Ordering::Relaxed), self.total_objects.load(Ordering::Relaxed))
    }

    fn draw(&self) {
        let (total_bytes, _) = self.totals();
        let position = if total_bytes > 0 { &self.bytes } else { &self.objects };
        match &self.display {
            DisplayMode::Bar(bar) => {
                bar.set_position(position.load(Ordering::Relaxed));
                bar.tick();
            }
            DisplayMode::Lines => {
                let parts = [self.done_text(), self.left_text()].into_iter().filter(|part| !part.is_empty());
                let amount = parts.collect::<Vec<_>>().join(", ");
                let amount = if amount.is_empty() { "begun" } else { &amount };
                let line = format!("{}: {amount}\n", self.title);
                // An error of the error stream itself cannot be reported.
                let _ = io::stderr().lock().write_all(line.as_bytes());
            }
            DisplayMode::Hidden => {}
        }
    }

    /// `12.0 MB of 50.0 MB, 1,200 of 5,000 objects, 6.0 MB/s`.
    fn done_text(&self) -> String {
        let (total_bytes, total_objects) = self.totals();
        let (bytes, objects) = (self.bytes.load(Ordering::Relaxed), self.objects.load(Ordering::Relaxed));
        let mut parts = Vec::new();
        if total_bytes > 0 {
            parts.push(format!("{} of {}", HumanBytes(bytes), HumanBytes(total_bytes)));
        } else if bytes > 0 {
            parts.push(HumanBytes(bytes).to_string());
        }
        if total_objects > 0 {
            parts.push(format!("{} of {} {}", HumanCount(objects), HumanCount(total_objects), self.unit));
        } else if objects > 0 {
            parts.push(format!("{} {}", HumanCount(objects), self.unit));
        }
        if bytes > 0 {
            parts.push(format!("{}/s", HumanBytes(rate(bytes, self.work_time()))));
        }
        parts.join(", ")
    }

    /// `12 s left`, when a rate is known.
    fn left_text(&self) -> String {
        let (total_bytes, total_objects) = self.totals();
        let (done, total) = if total_bytes > 0 {
            (self.bytes.load(Ordering::Relaxed), total_bytes)
        } else {
            (self.objects.load(Ordering::Relaxed), total_objects)
        };
        if done == 0 || total <= done {
            return String::new();
        }
        let seconds = self.work_time().as_secs_f64() * (total - done) as f64 / done as f64;
        format!("{} left", HumanDuration(Duration::from_secs_f64(seconds.min(1e9))))
    }
}

/// Units per second.
pub(crate) fn rate(count: u64, time: Duration) -> u64 {
    (count as f64 / time.as_secs_f64().max(1e-6)) as u64
}

/// A duration with units: `4.2 ms`, `0.35 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds.round() as u64 {
            0 if seconds < 0.1 => write!(f, "{:.1} ms", seconds * 1e3),
            0..=9 => write!(f, "{seconds:.2} s"),
            whole @ 10..=119 => write!(f, "{whole} s"),
            whole @ 120..=7199 => write!(f, "{} min {} s", whole / 60, whole % 60),
            whole => write!(f, "{} h {} min", whole / 3600, whole % 3600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (milliseconds, words) in
            [(4, "4.0 ms"), (350, "0.35 s"), (12_400, "12 s"), (200_000, "3 min 20 s"), (7_500_000, "2 h 5 min")]
        {
            assert_eq!(HumanDuration(Duration::from_millis(milliseconds)).to_string(), words);
        }
    }

    #[test]
    fn progress_shows_done_and_total() {
        let progress = Progress::start("importing", &Output::new(true, false));
        progress.set_total(50_000_000, 5000);
        progress.advance(12_000_000, 1200);
        let done = progress.0.done_text();
        assert!(done.starts_with("12.0 MB of 50.0 MB, 1,200 of 5,000 objects, "), "{done}");
        assert!(progress.0.left_text().ends_with(" left"));
        progress.set_done(50_000_000, 5000);
        assert_eq!(progress.0.left_text(), "");
    }
}
