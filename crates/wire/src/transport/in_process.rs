//! Connections within a process, between roles that it embeds.
//!
//! A connection is a pair of buffers in memory, so neither system calls nor event queues are between its ends. Messages between machines
//! pass beside these buffers, as [values](crate::direct). No address of the system leads to a listener, so no other process can connect.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{DuplexStream, duplex};
use tokio::sync::{self, mpsc};

use crate::direct::DirectQueue;

/// Connections that may wait to be accepted at a listener.
const BACKLOG: usize = 128;

/// Bytes that are on their way in each direction of a connection.
const BUFFER: usize = 256 << 10;

/// One end of a connection within the process.
#[derive(Debug)]
pub struct InProcessStream {
    pub(super) bytes: DuplexStream,
    /// Messages to the other end, and from it.
    pub(super) outgoing: Arc<DirectQueue>,
    pub(super) incoming: Arc<DirectQueue>,
}

impl InProcessStream {
    /// Both ends of a connection.
    fn pair() -> (Self, Self) {
        let (near, far) = duplex(BUFFER);
        let (there, back): (Arc<DirectQueue>, Arc<DirectQueue>) = Default::default();
        let other = Self { bytes: far, outgoing: back.clone(), incoming: there.clone() };
        (Self { bytes: near, outgoing: there, incoming: back }, other)
    }
}

/// Listeners by name.
type Listeners = BTreeMap<String, mpsc::Sender<InProcessStream>>;

/// The listeners of this process.
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners::new());

fn listeners() -> MutexGuard<'static, Listeners> {
    // The map is consistent between statements, so a poisoned lock is harmless.
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the listener with this name.
pub(super) async fn connect(name: &str) -> io::Result<InProcessStream> {
    let found = listeners().get(name).cloned();
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "nothing in this process listens there");
    let accepting = found.ok_or_else(refused)?;
    let (own, other) = InProcessStream::pair();
    accepting.send(other).await.map_err(|_| refused())?;
    Ok(own)
}

/// Whether there is a listener with this name.
pub(super) fn is_listening(name: &str) -> bool {
    listeners().contains_key(name)
}

/// The user that this process, and with it the other end of each connection, runs as.
pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Accepts connections of this process.
#[derive(Debug)]
pub struct InProcessListener {
    name: String,
    accepted: sync::Mutex<mpsc::Receiver<InProcessStream>>,
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

    /// Waits for the next connection.
    pub(super) async fn accept(&self) -> io::Result<InProcessStream> {
        let accepted = self.accepted.lock().await.recv().await;
        accepted.ok_or_else(|| io::ErrorKind::NotConnected.into())
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
