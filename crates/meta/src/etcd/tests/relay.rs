//! A relay in front of a member that can drop answers and delay requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a relay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Forward everything.
    Forward,
    /// Forward requests and drop answers.
    DropAnswers,
    /// Delay requests until the relay forwards again.
    HoldRequests,
}

/// A relay. Dropping it closes it.
pub(super) struct Relay {
    at: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    mode: watch::Sender<Mode>,
    lost: AtomicUsize,
    held: AtomicUsize,
    /// Number of answers to delayed requests.
    answered: watch::Sender<usize>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// Starts a relay to a server.
    pub(super) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (mode, answered) = (watch::Sender::new(Mode::Forward), watch::Sender::default());
        let shared = Arc::new(Shared { mode, lost: AtomicUsize::new(0), held: AtomicUsize::new(0), answered });
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(to).await.unwrap();
                tokio::spawn(relay_connection(client, server, serving.clone()));
            }
        });
        Self { at, shared, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Number of dropped answers.
    pub(super) fn lost_answers(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// Number of delayed pieces of requests.
    pub(super) fn held_requests(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Waits until a delayed request is answered.
    pub(super) async fn wait_answered(&self) {
        self.shared.answered.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }
}

async fn relay_connection(client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = shared.clone();
    let (mark, was_held) = watch::channel(false);
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            if *requests.mode.borrow() == Mode::HoldRequests {
                requests.held.fetch_add(1, Ordering::SeqCst);
                mark.send_replace(true);
                let _ = requests.mode.subscribe().wait_for(|mode| *mode != Mode::HoldRequests).await;
            }
            if to_server.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
        // The client may have disconnected; the server has to answer all the same.
        std::future::pending::<()>().await;
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
        if *was_held.borrow() {
            shared.answered.send_modify(|count| *count += 1);
        }
        if *shared.mode.borrow() == Mode::DropAnswers {
            shared.lost.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        if to_client.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
