//! The redirectors that have registered with this peer server, for clients that look for one of their group.
//!
//! A registration lasts as long as the connection that it came on. Nothing of it is durable: a redirector registers with each server
//! above it, and again when it has connected again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Error, ErrorKind, Result};
use wire::proto::groups::{Groups, Redirector, Register};
use wire::transport::Address;

/// Bytes in the longest name of a group.
const MAX_NAME: usize = 255;
/// Most addresses of one redirector, and bytes in the longest.
const MAX_ADDRESSES: usize = 16;
const MAX_ADDRESS: usize = 1024;
/// Most redirectors that are registered at a time.
const MAX_REDIRECTORS: usize = 4096;

/// A group, and where one of its redirectors is.
type Key = (String, Vec<String>);
/// The redirectors, each with the number of the connection that registered it.
type Redirectors = BTreeMap<Key, (u64, Redirector)>;

/// The redirectors of all groups, in the order of their groups and addresses: clients try those of a group in this order, so that
/// they meet at the first one that lives.
#[derive(Debug, Default)]
pub(crate) struct GroupRegistry {
    redirectors: Mutex<Redirectors>,
}

impl GroupRegistry {
    fn lock(&self) -> MutexGuard<'_, Redirectors> {
        // The map is consistent between any two statements, so a panic elsewhere does no harm.
        self.redirectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The redirectors of a group, or of all if the name is empty.
    pub(super) fn find(&self, group: &str) -> Groups {
        let redirectors = self.lock();
        let found = redirectors.values().map(|(_, redirector)| redirector);
        let found = found.filter(|redirector| group.is_empty() || redirector.group == group);
        Groups { redirectors: found.cloned().collect() }
    }
}

/// What one connection has registered.
#[derive(Debug)]
pub(super) struct Registration {
    registry: Arc<GroupRegistry>,
    /// The number of the connection, which is never used again.
    connection: u64,
    key: Option<Key>,
}

impl Registration {
    /// A connection that has registered nothing. The numbers of connections are unique.
    pub(super) fn new(registry: Arc<GroupRegistry>, connection: u64) -> Self {
        Self { registry, connection, key: None }
    }

    /// Registers a redirector, in place of what the connection has registered before.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for names and addresses that cannot be; [`ErrorKind::TooLarge`] if there are too many redirectors.
    pub(super) fn register(&mut self, register: Register) -> Result<()> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, format!("a redirector registers {what}"));
        let redirector = register.redirector.ok_or_else(|| invalid("nothing"))?;
        let Redirector { group, addresses, .. } = &redirector;
        if group.is_empty() || group.len() > MAX_NAME || group.chars().any(char::is_control) {
            return Err(invalid(&format!(
                "a name of a group that is empty, longer than {MAX_NAME} bytes, or not printable"
            )));
        }
        let is_address = |text: &String| text.len() <= MAX_ADDRESS && text.parse::<Address>().is_ok();
        if addresses.is_empty() || addresses.len() > MAX_ADDRESSES || !addresses.iter().all(is_address) {
            return Err(invalid(&format!("none, more than {MAX_ADDRESSES}, or invalid addresses")));
        }
        let key = (group.clone(), addresses.clone());
        if self.key.as_ref() != Some(&key) {
            self.withdraw();
        }
        let mut redirectors = self.registry.lock();
        if redirectors.len() >= MAX_REDIRECTORS && !redirectors.contains_key(&key) {
            let what = format!("{MAX_REDIRECTORS} redirectors are registered here already");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        // One that was started again replaces its earlier process.
        redirectors.insert(key.clone(), (self.connection, redirector));
        self.key = Some(key);
        Ok(())
    }

    fn withdraw(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut redirectors = self.registry.lock();
        if redirectors.get(&key).is_some_and(|(by, _)| *by == self.connection) {
            redirectors.remove(&key);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirector(group: &str, address: &str) -> Register {
        let (group, addresses) = (group.to_owned(), vec![address.to_owned()]);
        Register { redirector: Some(Redirector { group, addresses, ..Redirector::default() }) }
    }

    fn find_addresses(registry: &GroupRegistry, group: &str) -> Vec<String> {
        registry.find(group).redirectors.into_iter().map(|found| found.addresses[0].clone()).collect()
    }

    #[test]
    fn redirectors_are_found_by_group_in_the_order_of_addresses_until_their_connections_end() {
        let registry = Arc::new(GroupRegistry::default());
        let mut connections: Vec<_> = (0..3).map(|number| Registration::new(registry.clone(), number)).collect();
        connections[0].register(redirector("shed", "host-b:1")).unwrap();
        connections[1].register(redirector("shed", "host-a:1")).unwrap();
        connections[2].register(redirector("attic", "host-c:1")).unwrap();
        assert_eq!(find_addresses(&registry, "shed"), ["host-a:1", "host-b:1"]);
        assert_eq!(find_addresses(&registry, ""), ["host-c:1", "host-a:1", "host-b:1"]);
        assert!(find_addresses(&registry, "cellar").is_empty());
        // One that moves has one entry.
        connections[2].register(redirector("shed", "host-c:1")).unwrap();
        assert_eq!((find_addresses(&registry, "attic").len(), find_addresses(&registry, "shed").len()), (0, 3));
        connections.truncate(1);
        assert_eq!(find_addresses(&registry, ""), ["host-b:1"]);
    }

    #[test]
    fn later_process_at_an_address_outlives_the_registration_of_the_earlier_one() {
        let registry = Arc::new(GroupRegistry::default());
        let [mut before, mut after] = [1, 2].map(|number| Registration::new(registry.clone(), number));
        before.register(redirector("shed", "host-a:1")).unwrap();
        after.register(redirector("shed", "host-a:1")).unwrap();
        drop(before);
        assert_eq!(find_addresses(&registry, "shed"), ["host-a:1"]);
    }

    #[test]
    fn invalid_names_and_addresses_are_refused() {
        let registry = Arc::new(GroupRegistry::default());
        let mut connection = Registration::new(registry.clone(), 1);
        let long = "x".repeat(MAX_NAME + 1);
        for (group, address) in [("", "host:1"), ("a\nb", "host:1"), (&long, "host:1"), ("shed", "no address")] {
            let refused = connection.register(redirector(group, address)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{group:?} {address}");
        }
        assert!(connection.register(Register { redirector: None }).is_err());
        let at = |count: usize| {
            let addresses = (1..=count).map(|port| format!("host:{port}")).collect();
            Register { redirector: Some(Redirector { group: "shed".to_owned(), addresses, ..Redirector::default() }) }
        };
        for count in [0, MAX_ADDRESSES + 1, MAX_ADDRESSES + 2] {
            assert_eq!(connection.register(at(count)).unwrap_err().kind(), ErrorKind::Invalid, "{count} addresses");
        }
        assert!(find_addresses(&registry, "").is_empty());
        connection.register(at(MAX_ADDRESSES)).unwrap();
        assert_eq!(find_addresses(&registry, "shed").len(), 1);
    }
}
