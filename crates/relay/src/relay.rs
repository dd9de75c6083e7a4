//! A running relay: its thread, which accepts and serves connections, and the handle of its owner.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time;

use crate::config::MAX_DURATION;
use crate::emulation::Emulation;
use crate::socket::Listener;
use crate::{Address, Config, Counters, StartError, connection};

/// The pause after a connection that could not be accepted, such as without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running relay. Dropping it ends it, and breaks its connections.
#[derive(Debug)]
pub struct Relay {
    address: Address,
    emulation: Arc<Emulation>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay. Returns when it listens. It connects to the target for each client, so the target may start later.
    ///
    /// Blocks for a moment, longer if a host name has to be looked up.
    ///
    /// # Errors
    /// [`StartError`] says what to change.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.link.check()?;
        let listen = config.listen.clone();
        let emulation = Arc::new(Emulation::start(config).map_err(StartError::System)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::System)?;
        let (end, ended) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        let thread = thread::Builder::new().name("relay".to_owned()).spawn({
            let emulation = emulation.clone();
            move || runtime.block_on(run(&listen, emulation, &bound, ended))
        });
        let thread = thread.map_err(StartError::System)?;
        let address = address.recv().map_err(|_| StartError::System(io::Error::other("its thread has ended")))??;
        Ok(Self { address, emulation, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What it has forwarded until now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.emulation.counters()
    }

    /// Cuts the link until it is called with `false`, beside the cuts of the schedules.
    pub fn set_cut(&self, cut: bool) {
        self.emulation.set_cut(cut);
    }

    /// Changes the delay of each direction (at most a day) for bytes that enter the link from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.emulation.set_delay(delay.min(MAX_DURATION));
    }

    /// Ends it at once, and breaks its connections. Returns what it has forwarded.
    pub fn shutdown(mut self) -> Counters {
        let counters = self.counters();
        self.stop();
        counters
    }

    fn stop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported on the error stream.
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Listens, and serves connections until `ended` is dropped. Its runtime ends the connections with it.
async fn run(
    listen: &Address,
    emulation: Arc<Emulation>,
    bound: &mpsc::Sender<Result<Address, StartError>>,
    ended: oneshot::Receiver<()>,
) {
    let listening = Listener::bind(listen).await.and_then(|listener| Ok((listener.address()?, listener)));
    let listener = match listening {
        Ok((address, listener)) => {
            // The starter waits for it.
            let _ = bound.send(Ok(address));
            listener
        }
        Err(error) => {
            let _ = bound.send(Err(StartError::Listen(listen.clone(), error)));
            return;
        }
    };
    tokio::select! {
        () = accept(&listener, &emulation) => {}
        // An error says that the handle was dropped.
        _ = ended => {}
    }
}

/// Accepts connections for ever.
async fn accept(listener: &Listener, emulation: &Arc<Emulation>) {
    tokio::spawn({
        let emulation = emulation.clone();
        async move { emulation.follow_schedules().await }
    });
    loop {
        emulation.wait_open().await;
        let client = match listener.accept().await {
            Ok(client) => client,
            Err(error) => {
                *emulation.last_failure() = Some(format!("cannot accept a connection: {error}"));
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let emulation = emulation.clone();
        emulation.count_accepted_connection();
        tokio::spawn(async move {
            emulation.wait_open().await;
            connection::serve(&emulation, client).await;
            emulation.count_closed_connection();
        });
    }
}
