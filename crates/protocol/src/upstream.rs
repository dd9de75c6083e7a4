//! A node's session with the node above it, in the tree of one logical node (rule D4).
//!
//! ```text
//!              leased                      lease ended, closed, or disconnected
//!   opening ───────────▶ open ────────────────────────────────────────────────────▶ opening, with another number
//! ```
//!
//! When a session ends, all copies are suspended until they are revalidated in the next one.

use crate::ident::HolderId;
use crate::lease::{Lease, Ms};
use crate::plant::{Bug, planted};
use crate::tree::Up;

/// The requested length of a lease, in milliseconds.
pub const LEASE_MS: u64 = 10_000;
/// The minimum time before a renewal, in milliseconds. A lease is short if the upper node's own is about to be renewed.
const MIN_RENEW_MS: u64 = 100;
/// Renewals that are not urgent are sent at whole seconds of the holder's clock: so those of all its trees share a
/// packet, and an idle holder sends at most one a second.
const ROUND_MS: u64 = 1_000;
/// How long the holder waits for an answer before it repeats the request, in milliseconds.
const REPEAT_MS: u64 = 1_000;

/// The session.
#[derive(Clone, Debug)]
pub struct Upstream {
    holder: HolderId,
    lease: Lease,
    open: bool,
    connected: bool,
    /// The previous session, which the next request replaces if nothing below uses its data.
    previous: Option<HolderId>,
    /// When to request a lease.
    renew: Ms,
    /// The number of questions to the root.
    syncs: u64,
}

impl Upstream {
    /// A session that is about to open. The numbers from `holder` on are unique for ever.
    #[must_use]
    pub fn new(holder: HolderId) -> Self {
        Self { holder, lease: Lease::default(), open: false, connected: false, previous: None, renew: 0, syncs: 0 }
    }

    /// The number of the session; messages of other sessions are dropped.
    #[must_use]
    pub fn holder(&self) -> HolderId {
        self.holder
    }

    /// Handles a new connection.
    pub fn connect(&mut self, now: Ms) {
        (self.connected, self.renew) = (true, now);
    }

    /// Handles the loss of the connection. Returns whether a session ends with it.
    pub fn disconnect(&mut self, now: Ms) -> bool {
        self.connected = false;
        self.close(now)
    }

    /// Ends the session; the next one has another number. Returns whether it was open.
    pub fn close(&mut self, now: Ms) -> bool {
        let was_open = std::mem::replace(&mut self.open, false);
        // Requests of this session may still be granted. A session that was open is listed for pages; one that never
        // opened is not.
        if was_open || self.previous.is_none() {
            self.previous = Some(self.holder);
        }
        self.holder = HolderId(self.holder.0 + 1);
        self.lease = Lease::default();
        self.renew = now;
        was_open
    }

    /// Whether [`Upstream::poll`] would request a lease.
    #[must_use]
    pub fn is_due(&self, now: Ms) -> bool {
        self.connected && now >= self.renew
    }

    /// Requests a lease if it is due. `height` is 0 if no node below may still use data of an earlier session;
    /// `subscribe` requests closed timestamps.
    pub fn poll<T>(&mut self, now: Ms, height: u8, subscribe: bool) -> Option<Up<T>> {
        if !self.is_due(now) {
            return None;
        }
        self.renew = now + REPEAT_MS;
        let replaces = self.previous.filter(|_| height == 0 && !self.open);
        let sync = if self.open { 0 } else { self.next_sync() };
        Some(Up::Renew { asked: now, wanted_ms: LEASE_MS, open: !self.open, sync, subscribe, height, replaces })
    }

    /// Requests a lease now, with an answer from the root.
    ///
    /// # Panics
    /// If no session is open (N1).
    pub fn sync<T>(&mut self, now: Ms, height: u8, subscribe: bool) -> Up<T> {
        assert!(self.open, "N1: a question to the root needs an open session, but {:?} is not open", self.holder);
        let sync = self.next_sync();
        Up::Renew { asked: now, wanted_ms: LEASE_MS, open: false, sync, subscribe, height, replaces: None }
    }

    fn next_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// The number of the last question to the root.
    #[must_use]
    pub fn last_sync(&self) -> u64 {
        self.syncs
    }

    /// Handles the answer to the request that was sent at `asked`: a lease of this length. Returns whether it opens the
    /// session.
    pub fn handle_leased(&mut self, asked: Ms, lease_ms: u64, now: Ms) -> bool {
        self.lease.extend(asked, lease_ms, now);
        if lease_ms == 0 || !self.lease.is_valid(now) {
            return false;
        }
        let renew = now + (self.lease.remaining_ms(now) / 2).max(MIN_RENEW_MS);
        self.renew = Some(renew - renew % ROUND_MS).filter(|round| *round > now + MIN_RENEW_MS).unwrap_or(renew);
        !std::mem::replace(&mut self.open, true)
    }

    /// Whether the session is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether data of this session may be used now.
    #[must_use]
    pub fn is_valid(&self, now: Ms) -> bool {
        self.open && (self.lease.is_valid(now) || planted(Bug::UsedBeyondLease))
    }

    /// Whether the session is open and its lease has ended.
    #[must_use]
    pub fn has_lapsed(&self, now: Ms) -> bool {
        self.open && !self.is_valid(now)
    }

    /// The longest lease that may be granted to holders below, in milliseconds.
    #[must_use]
    pub fn remaining_ms(&self, now: Ms) -> u64 {
        if self.open { self.lease.remaining_ms(now) } else { 0 }
    }

    /// When [`Upstream::poll`] is due, or the lease ends.
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

    /// A renewal that opens a session.
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
    fn lease_is_renewed_before_it_ends() {
        let mut upstream = open(100);
        assert_eq!(upstream.poll::<u64>(200, 0, false), None);
        let renew = upstream.deadline().unwrap();
        assert!(renew < 100 + LEASE_MS);
        assert_eq!(upstream.poll(renew, 0, false), Some(renewal(renew)));
        assert!(!upstream.handle_leased(renew, LEASE_MS, renew + 1), "the session was open before");
        assert!(upstream.is_valid(100 + LEASE_MS) && upstream.has_lapsed(renew + LEASE_MS));
    }

    #[test]
    fn renewals_of_different_sessions_are_sent_together() {
        let renewed = |at| open(at).deadline().unwrap();
        assert_eq!(renewed(1_203), renewed(1_789));
        // A short lease is renewed before it ends.
        let mut upstream = Upstream::new(HolderId(7));
        upstream.connect(1_203);
        upstream.poll::<u64>(1_203, 0, false);
        assert!(upstream.handle_leased(1_203, 300, 1_204));
        assert!(upstream.deadline().unwrap() < 1_503);
    }

    #[test]
    fn next_session_replaces_the_previous_one_if_its_data_is_unused() {
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
    fn next_session_replaces_the_last_open_one() {
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
    fn refused_lease_opens_no_session() {
        let mut upstream = Upstream::new(HolderId(7));
        upstream.connect(0);
        upstream.poll::<u64>(0, 0, false);
        assert!(!upstream.handle_leased(0, 0, 5));
        assert!(!upstream.is_valid(5));
        assert!(upstream.deadline() > Some(5));
    }
}
