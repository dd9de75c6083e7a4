//! Makes whoever guesses passwords wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{self, Instant};

/// What the first wrong password costs; each further one twice as much.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(4);
/// How long failures are remembered after the last one.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Of how many places.
const MAX_TRACKED: usize = 4096;

/// Where somebody tries: the address, and the name that is tried. Without an address it is on this machine.
pub(super) type LoginSource = (Option<IpAddr>, String);

/// Remembers who has failed lately, and makes them wait.
#[derive(Default)]
pub(super) struct LoginThrottle {
    failures: Mutex<HashMap<LoginSource, Failures>>,
}

struct Failures {
    count: u32,
    /// When the next try is looked at.
    until: Instant,
}

impl LoginThrottle {
    /// Waits until a try from there is looked at: those that are made at the same time come one after the other.
    pub(super) async fn wait(&self, place: &LoginSource) {
        let until = self.failures.lock().get(place).map(|failures| failures.until);
        if let Some(until) = until {
            time::sleep_until(until.min(Instant::now() + MAX_DELAY)).await;
        }
    }

    /// A try has failed: returns when that may be told.
    pub(super) async fn record_failure(&self, place: &LoginSource) {
        let until = self.count_failure(place);
        time::sleep_until(until.min(Instant::now() + MAX_DELAY)).await;
    }

    fn count_failure(&self, place: &LoginSource) -> Instant {
        let (now, mut all) = (Instant::now(), self.failures.lock());
        all.retain(|_, failures| now < failures.until + FORGET_AFTER);
        if all.len() >= MAX_TRACKED && !all.contains_key(place) {
            // Whoever fills it up waits as the first time; others wait no longer than they have to.
            return now + FIRST_DELAY;
        }
        let failures = all.entry(place.clone()).or_insert(Failures { count: 0, until: now });
        failures.until = failures.until.max(now) + (FIRST_DELAY * (1 << failures.count.min(8))).min(MAX_DELAY);
        failures.count += 1;
        failures.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wrong_password_costs_more_until_some_time_has_passed() {
        let delay = LoginThrottle::default();
        let place: LoginSource = (None, "ann".to_owned());
        let took = async |place: &LoginSource| {
            let begun = Instant::now();
            delay.record_failure(place).await;
            begun.elapsed()
        };
        assert_eq!(took(&place).await, FIRST_DELAY);
        assert_eq!(took(&place).await, FIRST_DELAY * 2);
        assert_eq!(took(&(None, "bob".to_owned())).await, FIRST_DELAY, "others do not pay for it");
        for _ in 0..8 {
            took(&place).await;
        }
        assert_eq!(took(&place).await, MAX_DELAY);
        time::sleep(FORGET_AFTER + Duration::from_secs(1)).await;
        assert_eq!(took(&place).await, FIRST_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_after_a_failure_are_looked_at_later() {
        let delay = LoginThrottle::default();
        let place: LoginSource = (None, "ann".to_owned());
        delay.count_failure(&place);
        let begun = Instant::now();
        delay.wait(&place).await;
        assert_eq!(begun.elapsed(), FIRST_DELAY);
        let begun = Instant::now();
        delay.wait(&(None, "bob".to_owned())).await;
        assert!(begun.elapsed().is_zero());
    }
}
