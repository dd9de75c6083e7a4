//! How many queries may be open, and sort or group, at a time: of all clients, and of one user; how much the open ones keep of what their
//! transactions have written; and how many scans a user may have under way at bricks, so that those of one user leave room for the requests
//! of others. A place is kept until the work in it has ended, even if its query has ended before.
//!
//! A user has at most half of the places, so that others can always ask. Callers without a name, who exist only while there are no
//! users, and processes of the cluster have no such limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::{Error, ErrorKind, Result, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::tasks;

use crate::node_placement::BrickId;

/// Most open queries of all clients.
const MAX_OPEN: usize = 1024;
/// Most queries that may sort or group at the same time; others wait.
const MAX_COLLECTING: usize = 8;

/// Bytes of written objects that the open queries of all clients keep, and those of one user. A transaction writes no more than the latter.
const MAX_OWN_WRITES: usize = 1 << 30;
const MAX_OWN_WRITES_OF_USER: usize = limits::TRANSACTION;
/// One permit stands for this many bytes. Fewer are not counted.
const OWN_WRITES_UNIT: usize = 64 << 10;
/// Most scans of one user that a brick has not answered; others wait. A connection to a brick takes hundreds of requests.
const MAX_SCANNING: usize = 64;

/// Limits of the queries of all clients, shared by all shards.
#[derive(Clone)]
pub(in crate::peer) struct QueryLimits {
    all: Arc<Places>,
    users: Arc<Mutex<HashMap<Arc<str>, Weak<Places>>>>,
}

#[derive(Debug)]
struct Places {
    open: Arc<Semaphore>,
    collecting: Arc<Semaphore>,
    /// Units of written objects.
    own_writes: Arc<Semaphore>,
    /// Scans, by the brick that is to answer: one that does not answer keeps none from the others.
    scanning: Mutex<BTreeMap<BrickId, Arc<Semaphore>>>,
}

impl Places {
    fn new(open: usize, collecting: usize, own_writes: usize) -> Arc<Self> {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        let (open, collecting, own_writes) =
            (semaphore(open), semaphore(collecting), semaphore(own_writes / OWN_WRITES_UNIT));
        Arc::new(Self { open, collecting, own_writes, scanning: Mutex::default() })
    }

    /// The places of scans at a brick.
    fn scanning(&self, brick: BrickId) -> Arc<Semaphore> {
        let mut scanning = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        scanning.entry(brick).or_insert_with(|| Arc::new(Semaphore::new(MAX_SCANNING))).clone()
    }
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { all: Places::new(MAX_OPEN, MAX_COLLECTING, MAX_OWN_WRITES), users: Arc::default() }
    }
}

impl QueryLimits {
    /// The places that the queries of a user may take.
    pub(in crate::peer) fn share_of(&self, user: Option<Arc<str>>) -> UserShare {
        let all = self.all.clone();
        let Some(user) = user else { return UserShare { all, own: None } };
        // The map is consistent between any two statements, so a panic elsewhere does no harm.
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = users.get(&user).and_then(Weak::upgrade) {
            return UserShare { all, own: Some(own) };
        }
        users.retain(|_, places| places.strong_count() > 0);
        let own = Places::new(MAX_OPEN / 2, MAX_COLLECTING / 2, MAX_OWN_WRITES_OF_USER);
        users.insert(user, Arc::downgrade(&own));
        UserShare { all, own: Some(own) }
    }
}

/// The places that the queries of one user may take.
#[derive(Clone, Debug)]
pub(in crate::peer) struct UserShare {
    all: Arc<Places>,
    own: Option<Arc<Places>>,
}

/// A place of a query, which it returns when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _of_user: Option<OwnedSemaphorePermit>,
    /// Keeps the count of the user's places.
    _own: Option<Arc<Places>>,
    _of_all: OwnedSemaphorePermit,
    /// For what the transaction has written.
    _own_writes: Vec<OwnedSemaphorePermit>,
}

/// A place of a scan, which it returns when it is dropped.
#[derive(Debug)]
pub(in crate::peer) struct ScanPlace {
    _of_user: Option<OwnedSemaphorePermit>,
    /// Keeps the count of the user's places.
    _own: Option<Arc<Places>>,
}

impl UserShare {
    /// Calls `scan` with a place for it at a brick: at once if there is one, or when a scan of the user there has ended.
    pub(in crate::peer) fn when_free(self, brick: BrickId, scan: impl FnOnce(ScanPlace) + Send + 'static) {
        let Some(own) = self.own else { return scan(ScanPlace { _of_user: None, _own: None }) };
        let scanning = own.scanning(brick);
        if let Ok(place) = scanning.clone().try_acquire_owned() {
            return scan(ScanPlace { _of_user: Some(place), _own: Some(own) });
        }
        tasks::spawn(async move {
            // Places are never closed.
            if let Ok(place) = scanning.acquire_owned().await {
                scan(ScanPlace { _of_user: Some(place), _own: Some(own) });
            }
        });
    }

    /// A place for an open query that keeps this many bytes of what its transaction has written.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is none.
    pub(super) fn open(&self, own_writes: usize) -> Result<Place> {
        let full = |who: String| {
            let what = format!("{who} open at this peer server: try again, or ask another one");
            Error::new(ErrorKind::Unavailable, what)
        };
        let of_user = self.own.as_ref().map(|own| own.open.clone().try_acquire_owned()).transpose();
        let of_user = of_user.map_err(|_| full(format!("{} queries of this user are", MAX_OPEN / 2)))?;
        let of_all = self.all.open.clone().try_acquire_owned().map_err(|_| full(format!("{MAX_OPEN} queries are")))?;
        // Units of a user's whole share are enough for a transaction with the most bytes and many objects.
        let units = (own_writes.min(MAX_OWN_WRITES_OF_USER) / OWN_WRITES_UNIT) as u32;
        let shares = self.own.iter().chain([&self.all]);
        let kept = shares.map(|places| places.own_writes.clone().try_acquire_many_owned(units));
        let kept = kept.collect::<Result<Vec<_>, _>>().map_err(|_| {
            full("queries of transactions that have written as much as may be kept for queries are".to_owned())
        })?;
        Ok(Place { _of_user: of_user, _own: self.own.clone(), _of_all: of_all, _own_writes: kept })
    }

    /// A place for a query that sorts or groups, once there is one.
    ///
    /// # Errors
    /// None: places are never closed.
    pub(super) async fn collect(&self) -> Result<Place> {
        let closed = |_| Error::new(ErrorKind::Internal, "the places of queries were closed");
        let of_user = match &self.own {
            // First, so that a user who has to wait keeps no other from a place.
            Some(own) => Some(own.collecting.clone().acquire_owned().await.map_err(closed)?),
            None => None,
        };
        let of_all = self.all.collecting.clone().acquire_owned().await.map_err(closed)?;
        Ok(Place { _of_user: of_user, _own: self.own.clone(), _of_all: of_all, _own_writes: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time;

    use super::*;

    #[test]
    fn one_user_opens_at_most_half_of_the_queries() {
        let limits = QueryLimits::default();
        let user = |name: &str| limits.share_of(Some(name.into()));
        let mut open = Vec::new();
        while let Ok(place) = user("eve").open(0) {
            open.push(place);
        }
        assert_eq!(open.len(), MAX_OPEN / 2);
        let error = user("eve").open(0).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Unavailable && error.message().contains("512 queries of this user"),
            "{error}"
        );
        let others: Vec<Place> = (0..MAX_OPEN / 2).map(|_| user("ann").open(0).unwrap()).collect();
        assert!(limits.share_of(None).open(0).is_err());
        drop(open);
        assert!(user("eve").open(0).is_ok() && user("bob").open(0).is_ok());
        drop(others);
        let without_users: Vec<Place> = (0..MAX_OPEN).map(|_| limits.share_of(None).open(0).unwrap()).collect();
        drop(without_users);
        // Users without queries are forgotten.
        drop(user("cid").open(0));
        assert_eq!(limits.users.lock().unwrap().len(), 1);
    }

    #[test]
    fn what_open_queries_keep_of_own_writes_is_bounded_for_a_user_and_for_all() {
        const MIB: usize = 1 << 20;
        let limits = QueryLimits::default();
        let user = |name: &str| limits.share_of(Some(name.into()));
        let eve = user("eve");
        let most = eve.open(model::limits::TRANSACTION + MIB).unwrap();
        assert_eq!(eve.open(MIB).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(eve.open(1_000).is_ok(), "little is not counted");
        let ann = user("ann");
        let places: Vec<Place> = (0..4).map(|_| ann.open(64 * MIB).unwrap()).collect();
        assert!(ann.open(64 * MIB).is_err());
        drop(places);
        assert!(ann.open(64 * MIB).is_ok());
        let nobody = limits.share_of(None);
        let places: Vec<Place> = (0..3).map(|_| nobody.open(256 * MIB).unwrap()).collect();
        assert!(ann.open(64 * MIB).is_err(), "all clients together keep too much");
        drop((most, places));
        assert!(ann.open(64 * MIB).is_ok());
    }

    #[tokio::test]
    async fn scans_of_one_user_wait_for_each_other_and_for_no_other() {
        let limits = QueryLimits::default();
        let (sender, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let scan = |user: Option<&str>, brick: u32| {
            let sender = sender.clone();
            let share = limits.share_of(user.map(Arc::from));
            share.when_free(BrickId(brick), move |place| sender.send(place).unwrap());
        };
        let kept = limits.share_of(Some("eve".into()));
        (0..MAX_SCANNING + 2).for_each(|_| scan(Some("eve"), 1));
        let mut places: Vec<ScanPlace> = std::iter::from_fn(|| begun.try_recv().ok()).collect();
        assert_eq!(places.len(), MAX_SCANNING);
        for (user, brick) in [(Some("ann"), 1), (None, 1), (Some("eve"), 2)] {
            scan(user, brick);
            places.push(begun.try_recv().expect("another user, or at another brick, does not wait"));
        }
        tokio::task::yield_now().await;
        assert!(begun.try_recv().is_err());
        drop(places);
        begun.recv().await.unwrap();
        begun.recv().await.unwrap();
        drop(kept);
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_sorts_at_most_half_of_what_is_sorted_at_a_time() {
        let limits = QueryLimits::default();
        let (eve, ann) = (limits.share_of(Some("eve".into())), limits.share_of(Some("ann".into())));
        let mut sorting = Vec::new();
        for _ in 0..MAX_COLLECTING / 2 {
            sorting.push(eve.collect().await.unwrap());
        }
        let waits = time::timeout(Duration::from_secs(1), eve.collect()).await;
        assert!(waits.is_err());
        time::timeout(Duration::from_secs(1), ann.collect()).await.unwrap().unwrap();
        sorting.pop();
        time::timeout(Duration::from_secs(1), eve.collect()).await.unwrap().unwrap();
    }
}
