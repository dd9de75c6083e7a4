//! One connection: two flows, each of which reads from one end, waits as the link says, and writes to the other end.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use crate::delay_queue::{DelayQueue, Segment};
use crate::emulation::{Direction, Emulation};
use crate::link::MAX_CHUNK_BYTES;
use crate::socket::{ReadHalf, Stream, WriteHalf};

thread_local! {
    /// Bytes between a read and their chunk. All connections of a thread share it, so that an idle one takes no memory.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_CHUNK_BYTES]);
}

/// The end of a connection to which a reset has come.
enum ResetAt {
    Client,
    Target,
}

/// How a flow has ended.
enum FlowEnd {
    /// The end of the direction was delivered; the other direction goes on.
    Closed,
    /// A reset was delivered.
    Reset,
    /// The destination accepts no bytes any more.
    Broken,
}

/// Connects a client to the target, and forwards until the connection ends.
pub(crate) async fn serve(emulation: &Emulation, client: Stream) {
    // The first packet of the client's handshake reaches the target after one delay. The client's first bytes leave after a round trip.
    let accepted_at = emulation.now();
    emulation.sleep_until(accepted_at + emulation.delay()).await;
    emulation.wait_open().await;
    let connected = Stream::connect(&emulation.target).await;
    let established_at = accepted_at + 2 * emulation.delay();
    match connected {
        Ok(target) => forward(emulation, client, target, established_at).await,
        Err(error) => {
            emulation.count_failed_connection(format!("cannot connect to {}: {error}", emulation.target));
            emulation.sleep_until(established_at).await;
            emulation.wait_open().await;
            client.reset();
        }
    }
}

/// Forwards both directions. The client's bytes enter the link from `established_at` on.
async fn forward(emulation: &Emulation, mut client: Stream, mut target: Stream, established_at: Duration) {
    let ended = {
        let (from_client, to_client) = client.split();
        let (from_target, to_target) = target.split();
        let upstream = async {
            emulation.sleep_until(established_at).await;
            match Flow::new(emulation, &emulation.upstream).run(from_client, to_target).await {
                FlowEnd::Closed => Ok(()),
                FlowEnd::Reset => Err(ResetAt::Target),
                FlowEnd::Broken => Err(emulation.cross(&emulation.downstream, ResetAt::Client).await),
            }
        };
        let downstream = async {
            match Flow::new(emulation, &emulation.downstream).run(from_target, to_client).await {
                FlowEnd::Closed => Ok(()),
                FlowEnd::Reset => Err(ResetAt::Client),
                FlowEnd::Broken => Err(emulation.cross(&emulation.upstream, ResetAt::Target).await),
            }
        };
        tokio::try_join!(upstream, downstream)
    };
    match ended {
        Ok(_) => {}
        Err(ResetAt::Client) => client.reset(),
        Err(ResetAt::Target) => target.reset(),
    }
}

/// One direction of a connection.
struct Flow<'a> {
    emulation: &'a Emulation,
    direction: &'a Direction,
    queue: Mutex<DelayQueue>,
    pushed: Notify,
    popped: Notify,
}

impl<'a> Flow<'a> {
    fn new(emulation: &'a Emulation, direction: &'a Direction) -> Self {
        Self { emulation, direction, queue: Mutex::default(), pushed: Notify::new(), popped: Notify::new() }
    }

    /// Forwards until the end of the direction is delivered.
    async fn run(&self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> FlowEnd {
        let reading = async {
            self.read(from).await;
            pending().await
        };
        // Reading first: what is read and has no delay is written at once.
        tokio::select! {
            biased;
            end = reading => end,
            end = self.write(to) => end,
        }
    }

    /// Lets the chunks of `from` enter the link, until it ends.
    async fn read(&self, mut from: ReadHalf<'_>) {
        loop {
            self.wait_for_room().await;
            let chunk_bytes = self.direction.link().chunk_bytes();
            let segment = match read_chunk(&mut from, chunk_bytes).await {
                Ok(bytes) if bytes.is_empty() => Segment::End,
                Ok(bytes) => Segment::Data(bytes),
                Err(_) => Segment::Reset,
            };
            // The bytes arrived while the link was cut, or while the buffer of the line was full.
            self.emulation.wait_open().await;
            self.emulation.wait_accepted(self.direction).await;
            let is_last = !matches!(segment, Segment::Data(_));
            self.push(segment);
            if is_last {
                return;
            }
        }
    }

    fn push(&self, segment: Segment) {
        let arrives_at = self.emulation.transmit(self.direction, segment.len());
        self.queue().push(arrives_at, segment);
        self.pushed.notify_one();
    }

    /// Writes the chunks that have arrived.
    async fn write(&self, mut to: WriteHalf<'_>) -> FlowEnd {
        loop {
            self.wait_for_arrival().await;
            self.emulation.wait_open().await;
            match self.pop_arrived() {
                None => {}
                Some(Segment::Data(bytes)) => {
                    if to.write_all(&bytes).await.is_err() {
                        return FlowEnd::Broken;
                    }
                    self.direction.traffic.count_delivered(bytes.len());
                }
                Some(Segment::End) => {
                    // Fails only if the connection has ended.
                    let _ = to.shutdown().await;
                    return FlowEnd::Closed;
                }
                Some(Segment::Reset) => return FlowEnd::Reset,
            }
        }
    }

    async fn wait_for_room(&self) {
        while !self.queue().has_room() {
            self.popped.notified().await;
        }
    }

    async fn wait_for_arrival(&self) {
        loop {
            let next = self.queue().next_arrival();
            match next {
                Some(arrives_at) => return self.emulation.sleep_until(arrives_at).await,
                None => self.pushed.notified().await,
            }
        }
    }

    fn pop_arrived(&self) -> Option<Segment> {
        let segment = self.queue().pop_arrived(self.emulation.now());
        self.popped.notify_one();
        segment
    }

    fn queue(&self) -> MutexGuard<'_, DelayQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one chunk; it is empty at the end.
async fn read_chunk(from: &mut ReadHalf<'_>, max_bytes: usize) -> io::Result<Bytes> {
    poll_fn(|context| {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(&mut buffer[..max_bytes]);
            Pin::new(&mut *from).poll_read(context, &mut buffer).map_ok(|()| Bytes::copy_from_slice(buffer.filled()))
        })
    })
    .await
}
