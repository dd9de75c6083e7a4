//! Connections within a process, between roles that it embeds.
//!
//! A connection is a pair of connected Unix sockets. No address of the system leads to a listener, so no other process can connect.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::unix::net;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::UnixStream;
use tokio::sync::{self, mpsc};

use super::unix;

/// Connections that may wait to be accepted at a listener.
const BACKLOG: usize = 128;

/// Listeners by name.
type Listeners = BTreeMap<String, mpsc::Sender<net::UnixStream>>;

/// The listeners of this process.
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners::new());

fn listeners() -> MutexGuard<'static, Listeners> {
    // The map is consistent between statements, so a poisoned lock is harmless.
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the listener with this name.
pub(super) async fn connect(name: &str) -> io::Result<UnixStream> {
    let found = listeners().get(name).cloned();
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "nothing in this process listens there");
    let accepting = found.ok_or_else(refused)?;
    let (own, other) = UnixStream::pair()?;
    unix::enlarge_buffer(&own)?;
    unix::enlarge_buffer(&other)?;
    accepting.send(other.into_std()?).await.map_err(|_| refused())?;
    Ok(own)
}

/// Accepts connections of this process.
#[derive(Debug)]
pub struct InProcessListener {
    name: String,
    accepted: sync::Mutex<mpsc::Receiver<net::UnixStream>>,
}

impl InProcessListener {
    /// Listens under this name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if there is a listener.
    pub(super) fn bind(name: &str) -> io::Result<Self> {
        let (sender, accepted) = mpsc::channel(BACKLOG);
        match listeners().entry(name.to_owned()) {
            Entry::Occupied(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Entry::Vacant(place) => drop(place.insert(sender)),
        }
        Ok(Self { name: name.to_owned(), accepted: sync::Mutex::new(accepted) })
    }

    /// Waits for the next connection; also returns the user that this process runs as.
    pub(super) async fn accept(&self) -> io::Result<(net::UnixStream, u32)> {
        let accepted = self.accepted.lock().await.recv().await;
        let stream = accepted.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok((stream, rustix::process::geteuid().as_raw()))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for InProcessListener {
    fn drop(&mut self) {
        listeners().remove(&self.name);
    }
}
