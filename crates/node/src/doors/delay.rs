//! Makes whoever guesses passwords wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{self, Instant};

/// What the first wrong password costs; each further one twice as much.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(4);
/// How long failures are remembered after the last one.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Of how many places.
const PLACES: usize = 4096;

/// Where somebody tries: the address, and the name that is tried. Without an address it is on this machine.
pub(super) type Place = (Option<IpAddr>, String);

/// Remembers who has failed lately, and makes them wait.
#[derive(Default)]
pub(super) struct Delay {
    failures: Mutex<HashMap<Place, Failures>>,
}

struct Failures {
    count: u32,
    /// When the next try is looked at.
    until: Instant,
}

impl Delay {
    /// Waits until a try from there is looked at: those that are made at the same time come one after the other.
    pub(super) async fn wait(&self, place: &Place) {
        let until = self.failures.lock().get(place).map(|failures| failures.until);
        if let Some(until) = until {
            time::sleep_until(until.min(Instant::now() + LONGEST)).await;
        }
    }

    /// A try has failed: returns when that may be told.
    pub(super) async fn failed(&self, place: &Place) {
        let until = self.count(place);
        time::sleep_until(until.min(Instant::now() + LONGEST)).await;
    }

    fn count(&self, place: &Place) -> Instant {
        let (now, mut all) = (Instant::now(), self.failures.lock());
        all.retain(|_, failures| now < failures.until + REMEMBERED);
        if all.len() >= PLACES && !all.contains_key(place) {
            // Whoever fills it up waits as the first time; others wait no longer than they have to.
            return now + FIRST;
        }
        let failures = all.entry(place.clone()).or_insert(Failures { count: 0, until: now });
        failures.until = failures.until.max(now) + (FIRST * (1 << failures.count.min(8))).min(LONGEST);
        failures.count += 1;
        failures.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wrong_password_costs_more_until_some_time_has_passed() {
        let delay = Delay::default();
        let place: Place = (None, "ann".to_owned());
        let took = async |place: &Place| {
            let begun = Instant::now();
            delay.failed(place).await;
            begun.elapsed()
        };
        assert_eq!(took(&place).await, FIRST);
        assert_eq!(took(&place).await, FIRST * 2);
        assert_eq!(took(&(None, "bob".to_owned())).await, FIRST, "others do not pay for it");
        for _ in 0..8 {
            took(&place).await;
        }
        assert_eq!(took(&place).await, LONGEST);
        time::sleep(REMEMBERED + Duration::from_secs(1)).await;
        assert_eq!(took(&place).await, FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_after_a_failure_are_looked_at_later() {
        let delay = Delay::default();
        let place: Place = (None, "ann".to_owned());
        delay.count(&place);
        let begun = Instant::now();
        delay.wait(&place).await;
        assert_eq!(begun.elapsed(), FIRST);
        let begun = Instant::now();
        delay.wait(&(None, "bob".to_owned())).await;
        assert!(begun.elapsed().is_zero());
    }
}
