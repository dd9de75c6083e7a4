//! A node's session with the node above it, in the tree of one logical node (rule D4).
//!
//! ```text
//!              leased                      lease ran out, closed, or disconnected
//!   opening ───────────▶ open ────────────────────────────────────────────────────▶ opening, with another number
//! ```
//!
//! When a session ends, whatever is held is put aside, and is used again only when it was validated in the next one.

use crate::ident::HolderId;
use crate::lease::{Lease, Ms};
use crate::plant::{Bug, planted};
use crate::tree::Up;

/// How long a lease is asked for, in milliseconds.
pub const LEASE_MS: u64 = 10_000;
/// How soon a lease is renewed at the earliest: one that is short because the upper node's own is about to be renewed.
const MIN_RENEW_MS: u64 = 100;
/// Renewals that need not be soon are asked for at whole seconds of the holder's clock: so those of all its trees go together, in
/// one packet, and nobody who is idle sends more than one a second.
const ROUND_MS: u64 = 1_000;
/// How long an answer is waited for before the lease is asked for again.
const REPEAT_MS: u64 = 1_000;

/// The session.
#[derive(Clone, Debug)]
pub struct Upstream {
    holder: HolderId,
    lease: Lease,
    open: bool,
    connected: bool,
    /// The session before, if nothing that came by it is used below this node any more.
    previous: Option<HolderId>,
    /// When to ask for a lease.
    renew: Ms,
    /// Questions that the root has to answer.
    syncs: u64,
}

impl Upstream {
    /// A session that is about to begin. Nobody else ever has the numbers from `holder` on.
    #[must_use]
    pub fn new(holder: HolderId) -> Self {
        Self { holder, lease: Lease::default(), open: false, connected: false, previous: None, renew: 0, syncs: 0 }
    }

    /// The number of the session: messages of others are dropped.
    #[must_use]
    pub fn holder(&self) -> HolderId {
        self.holder
    }

    /// There is a connection.
    pub fn connect(&mut self, now: Ms) {
        (self.connected, self.renew) = (true, now);
    }

    /// The connection is gone. Says whether a session ends with it.
    pub fn disconnect(&mut self, now: Ms) -> bool {
        self.connected = false;
        self.close(now)
    }

    /// The session is over, if it was open; the next one has another number. Says whether it was.
    pub fn close(&mut self, now: Ms) -> bool {
        let was_open = std::mem::replace(&mut self.open, false);
        // What was asked for in this session may still be granted to it. One that was open is listed for pages; one that never
        // opened is not.
        if was_open || self.previous.is_none() {
            self.previous = Some(self.holder);
        }
        self.holder = HolderId(self.holder.0 + 1);
        self.lease = Lease::default();
        self.renew = now;
        was_open
    }

    /// Whether [`Upstream::poll`] would ask for a lease.
    #[must_use]
    pub fn is_due(&self, now: Ms) -> bool {
        self.connected && now >= self.renew
    }

    /// Asks for a lease, if it is time. `height` is 0 if no other node below may still use what came by an earlier session;
    /// `subscribe` says that closed timestamps are wanted.
    pub fn poll<T>(&mut self, now: Ms, height: u8, subscribe: bool) -> Option<Up<T>> {
        if !self.is_due(now) {
            return None;
        }
        self.renew = now + REPEAT_MS;
        let replaces = self.previous.filter(|_| height == 0 && !self.open);
        let sync = if self.open { 0 } else { self.next_sync() };
        Some(Up::Renew { asked: now, wanted_ms: LEASE_MS, open: !self.open, sync, subscribe, height, replaces })
    }

    /// Asks for a lease now, so that the answer comes from the root.
    ///
    /// # Panics
    /// If no session is open (N1).
    pub fn sync<T>(&mut self, now: Ms, height: u8, subscribe: bool) -> Up<T> {
        assert!(self.open, "N1: the root is asked in session {:?}, which is not open", self.holder);
        let sync = self.next_sync();
        Up::Renew { asked: now, wanted_ms: LEASE_MS, open: false, sync, subscribe, height, replaces: None }
    }

    fn next_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// The number of the last question that the root has to answer.
    #[must_use]
    pub fn last_sync(&self) -> u64 {
        self.syncs
    }

    /// The answer to what was `asked` then: so long a lease. Says whether the session is open by it, and was not before.
    pub fn handle_leased(&mut self, asked: Ms, lease_ms: u64, now: Ms) -> bool {
        self.lease.extend(asked, lease_ms, now);
        if lease_ms == 0 || !self.lease.is_valid(now) {
            return false;
        }
        let renew = now + (self.lease.remaining_ms(now) / 2).max(MIN_RENEW_MS);
        self.renew = Some(renew - renew % ROUND_MS).filter(|round| *round > now + MIN_RENEW_MS).unwrap_or(renew);
        !std::mem::replace(&mut self.open, true)
    }

    /// Whether there is a session.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether what came by this session may be used now.
    #[must_use]
    pub fn is_valid(&self, now: Ms) -> bool {
        self.open && (self.lease.is_valid(now) || planted(Bug::UsedBeyondLease))
    }

    /// Whether the lease has run out.
    #[must_use]
    pub fn has_lapsed(&self, now: Ms) -> bool {
        self.open && !self.is_valid(now)
    }

    /// How much of a lease may be granted to others below.
    #[must_use]
    pub fn remaining_ms(&self, now: Ms) -> u64 {
        if self.open { self.lease.remaining_ms(now) } else { 0 }
    }

    /// When [`Upstream::poll`] or the lease's end want something done.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let renew = self.connected.then_some(self.renew);
        self.lease_end().into_iter().chain(renew).min()
    }

    /// When the lease ends, if there is one.
    #[must_use]
    pub fn lease_end(&self) -> Option<Ms> {
        self.open.then(|| self.lease.until())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renewal in a session that is open.
    const fn renewal(asked: Ms) -> Up<u64> {
        let (wanted_ms, subscribe, height) = (LEASE_MS, false, 0);
        Up::Renew { asked, wanted_ms, open: false, sync: 0, subscribe, height, replaces: None }
    }

    /// One that opens a session.
    const fn opening(asked: Ms, sync: u64, height: u8, replaces: Option<HolderId>) -> Up<u64> {
        Up::Renew { asked, wanted_ms: LEASE_MS, open: true, sync, subscribe: false, height, replaces }
    }

    fn open(now: Ms) -> Upstream {
        let mut upstream = Upstream::new(HolderId(7));
        upstream.connect(now);
        assert_eq!(upstream.poll(now, 0, false), Some(opening(now, 1, 0, None)));
        assert!(upstream.handle_leased(now, LEASE_MS, now + 5));
        upstream
    }

    #[test]
    fn a_lease_is_renewed_before_it_runs_out() {
        let mut upstream = open(100);
        assert_eq!(upstream.poll::<u64>(200, 0, false), None);
        let renew = upstream.deadline().unwrap();
        assert!(renew < 100 + LEASE_MS);
        assert_eq!(upstream.poll(renew, 0, false), Some(renewal(renew)));
        assert!(!upstream.handle_leased(renew, LEASE_MS, renew + 1), "it was open before");
        assert!(upstream.is_valid(100 + LEASE_MS) && upstream.has_lapsed(renew + LEASE_MS));
    }

    #[test]
    fn sessions_that_began_apart_renew_together() {
        let renewed = |at| open(at).deadline().unwrap();
        assert_eq!(renewed(1_203), renewed(1_789));
        // What is short is renewed in time all the same.
        let mut upstream = Upstream::new(HolderId(7));
        upstream.connect(1_203);
        upstream.poll::<u64>(1_203, 0, false);
        assert!(upstream.handle_leased(1_203, 300, 1_204));
        assert!(upstream.deadline().unwrap() < 1_503);
    }

    #[test]
    fn a_session_that_is_over_has_another_number_and_replaces_the_one_before_if_nobody_below_uses_it() {
        let mut upstream = open(100);
        assert!(upstream.disconnect(200));
        assert!(!upstream.is_valid(200) && upstream.remaining_ms(200) == 0);
        assert_eq!(upstream.poll::<u64>(300, 0, false), None, "there is no connection");
        upstream.connect(400);
        assert_eq!(upstream.holder(), HolderId(8));
        let asked = |height| upstream.clone().poll(400, height, false);
        assert_eq!(asked(0), Some(opening(400, 2, 0, Some(HolderId(7)))));
        assert_eq!(asked(1), Some(opening(400, 2, 1, None)));
    }

    #[test]
    fn a_session_that_never_opened_does_not_hide_the_one_before() {
        let mut upstream = open(100);
        upstream.disconnect(200);
        upstream.connect(300);
        assert_eq!(upstream.poll(300, 0, false), Some(opening(300, 2, 0, Some(HolderId(7)))));
        upstream.disconnect(400);
        upstream.connect(500);
        assert_eq!(upstream.holder(), HolderId(9));
        assert_eq!(upstream.poll(500, 0, false), Some(opening(500, 3, 0, Some(HolderId(7)))));
    }

    #[test]
    fn no_lease_opens_nothing() {
        let mut upstream = Upstream::new(HolderId(7));
        upstream.connect(0);
        upstream.poll::<u64>(0, 0, false);
        assert!(!upstream.handle_leased(0, 0, 5));
        assert!(!upstream.is_valid(5));
        assert!(upstream.deadline() > Some(5));
    }
}
