//! Calls a function repeatedly from several threads, and measures rate and latency.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Result;

/// Latencies above a minute count as a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// The result of a measurement.
pub(crate) struct Measured {
    /// Calls per second of all threads together.
    pub(crate) rate: f64,
    /// The median latency, in microseconds.
    pub(crate) p50_us: f64,
}

/// Phases of a run.
const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// Each thread makes its own callee with `prepare` and calls it for `duration`, after a warm-up of a tenth of that.
///
/// `every` is the number of calls that are timed together: more than one if the clock would cost as much as the call.
pub(crate) fn hammer<C>(
    threads: usize,
    duration: Duration,
    every: u64,
    prepare: impl Fn(usize) -> Result<C> + Sync,
) -> Result<Measured>
where
    C: FnMut() -> Result<()>,
{
    let phase = AtomicU8::new(WARM_UP);
    let failed = AtomicBool::new(false);
    let barrier = Barrier::new(threads + 1);
    let work = |index| {
        let callee = prepare(index);
        // Failed threads reach this point, too; otherwise the others would wait for ever.
        barrier.wait();
        let result = callee.and_then(|callee| call_until_stopped(callee, &phase, &failed, every));
        failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    };
    thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        barrier.wait();
        wait(duration / 10, &failed);
        phase.store(MEASURE, Ordering::Relaxed);
        let begun = Instant::now();
        wait(duration, &failed);
        phase.store(STOP, Ordering::Relaxed);
        let elapsed = begun.elapsed();
        let (mut all, mut calls) = (new_histogram()?, 0);
        for handle in handles {
            let (histogram, count) = handle.join().map_err(|_| "a thread of the benchmark panicked")??;
            all.add(&histogram)?;
            calls += count;
        }
        Ok(Measured {
            rate: calls as f64 / elapsed.as_secs_f64(),
            p50_us: all.value_at_quantile(0.5) as f64 / every as f64 / 1e3,
        })
    })
}

/// An empty histogram of latencies in nanoseconds, up to a minute.
pub(crate) fn new_histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST_NS, 3)?)
}

fn wait(duration: Duration, failed: &AtomicBool) {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline && !failed.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5).min(deadline.saturating_duration_since(Instant::now())));
    }
}

/// Latencies and number of the calls of the measured phase.
fn call_until_stopped(
    mut callee: impl FnMut() -> Result<()>,
    phase: &AtomicU8,
    failed: &AtomicBool,
    every: u64,
) -> Result<(Histogram<u64>, u64)> {
    let (mut histogram, mut calls) = (new_histogram()?, 0);
    loop {
        let begun = Instant::now();
        for _ in 0..every {
            callee()?;
        }
        match phase.load(Ordering::Relaxed) {
            MEASURE => {
                histogram.saturating_record(u64::try_from(begun.elapsed().as_nanos())?.clamp(1, LONGEST_NS));
                calls += every;
            }
            WARM_UP if !failed.load(Ordering::Relaxed) => {}
            _ => return Ok((histogram, calls)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_threads_are_counted() {
        let measured = hammer(3, Duration::from_millis(30), 1, |_| {
            Ok(|| {
                thread::sleep(Duration::from_millis(1));
                Ok(())
            })
        });
        let measured = measured.unwrap();
        assert!(measured.rate > 0.0 && measured.p50_us >= 1000.0);
    }

    #[test]
    fn one_failure_ends_all_threads() {
        let failing = hammer(2, Duration::from_secs(600), 1, |index| {
            Ok(move || if index == 0 { Err("disk gone".into()) } else { Ok(()) })
        });
        assert_eq!(failing.err().map(|error| error.to_string()), Some("disk gone".to_owned()));
    }
}
