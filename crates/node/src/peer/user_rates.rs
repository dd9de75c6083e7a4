//! How fast the clients of each user get what a peer server gives without an end, such as numbers that are never given twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::{Error, ErrorKind, Result};
use protocol::lease::Ms;
use protocol::token_bucket::TokenBucket;

use super::plant::{Bug, planted};

/// The longest time that a client waits for its turn, in milliseconds.
const MAX_TURN_MS: Ms = 1_000;
/// Users whose rates are kept, at most, besides those who have to wait.
const MAX_IDLE_RATES: usize = 1_024;

/// The rates of users. Callers without a name share one.
#[derive(Debug)]
pub(super) struct UserRates {
    per_second: u64,
    /// What is given, as errors name it.
    what: &'static str,
    rates: Mutex<HashMap<Option<Arc<str>>, TokenBucket>>,
}

impl UserRates {
    /// So many a second for each user.
    pub(super) fn new(per_second: u64, what: &'static str) -> Self {
        Self { per_second, what, rates: Mutex::default() }
    }

    /// Takes so many for a client of a user. Returns how long the client has to wait before it gets them, in milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if that is more than a second; then it has taken none.
    pub(super) fn take(&self, user: Option<Arc<str>>, count: u32, now: Ms) -> Result<Ms> {
        // A bucket is consistent between any two statements.
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() > MAX_IDLE_RATES {
            rates.retain(|_, rate| rate.wait(now) > 0);
        }
        let rate = rates.entry(user).or_insert_with(|| TokenBucket::new(Some(self.per_second), now));
        let wait = rate.wait(now);
        if wait > MAX_TURN_MS && !planted(Bug::PagesWithoutRate) {
            let (what, per_second) = (self.what, self.per_second);
            let what = format!("clients of this user reserve more than {per_second} {what} a second: try again");
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        rate.take(u64::from(count), now);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;

    use super::*;

    const PER_SECOND: u64 = 1 << 20;

    #[test]
    fn user_gets_new_pages_at_a_rate() {
        assert_noticed(&[Bug::PagesWithoutRate], || {
            let rates = UserRates::new(PER_SECOND, "pages");
            let user = |name: &str| Some(Arc::from(name));
            let (mut now, mut given) = (1_000, 0);
            for _ in 0..1_000 {
                now += 10;
                while rates.take(user("eve"), 4_096, now).is_ok() {
                    given += 4_096;
                    assert!(given < 100 * PER_SECOND, "the number of pages has no bound");
                }
            }
            // Ten seconds, and the second that a client may wait.
            assert!((10 * PER_SECOND..=12 * PER_SECOND).contains(&given), "{given} pages are given");
            let error = rates.take(user("eve"), 1, now).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert_eq!(rates.take(user("ann"), 256, now).unwrap(), 0, "the rate is that of another user");
            assert_eq!(rates.take(user("eve"), 256, now + 2_000).unwrap(), 0);
            for number in 0..3 * MAX_IDLE_RATES {
                rates.take(user(&number.to_string()), 1, now + 10 * number as u64).unwrap();
            }
            assert!(rates.rates.lock().unwrap().len() <= MAX_IDLE_RATES + 1, "users without clients are forgotten");
        });
    }
}
