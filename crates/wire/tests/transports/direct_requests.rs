//! Requests between two ends in one process: the thread that sends one handles it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, ThreadId};

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use tokio::sync::mpsc;
use wire::link::{self, Answer, Caller, DeferredResponder, End, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, Stream};

use super::{local, meet, run};

/// What a service does with a request, by the bytes that come with it.
type Handling = dyn FnMut(Bytes, Responder<'_>) + Send;

struct Handler(Box<Handling>);

impl Service for Handler {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        (self.0)(incoming.raw.to_bytes(), reply);
    }
}

fn object_read() -> Response {
    Response::ObjectRead(proto::ObjectRead::default())
}

fn read() -> Request {
    Request::ReadObject(proto::ReadObject::default())
}

/// One end of a connection, and what drives it.
struct Side {
    caller: Caller,
    mailbox: Arc<Mailbox>,
    end: tokio::task::JoinHandle<End>,
}

fn serve(stream: Stream, handle: impl FnMut(Bytes, Responder<'_>) + Send + 'static) -> Side {
    let (mailbox, limits) = (Arc::new(Mailbox::default()), Limits::default());
    let link = Link::new(stream, Handler(Box::new(handle)), limits, limits.max_frame, mailbox.clone());
    Side { caller: Caller::new(mailbox.clone(), 64 << 20), mailbox, end: tokio::spawn(link::drive(link)) }
}

fn silent(stream: Stream) -> Side {
    serve(stream, |_, _| panic!("nothing is asked here"))
}

/// Both ends of a connection within the process.
async fn in_process(name: &str) -> (Stream, Stream) {
    let (near, far) = meet(&Address::InProcess(format!("direct-{name}")), None, None).await;
    (near.unwrap(), far.unwrap())
}

async fn over_tcp() -> (Stream, Stream) {
    let (near, far) = meet(&local(false), None, None).await;
    (near.unwrap(), far.unwrap())
}

async fn ask(side: &Side, bytes: &'static [u8]) -> Result<Answer> {
    side.caller.call(read(), vec![Bytes::from_static(bytes)]).await
}

/// The result of a future that has not to wait.
async fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(value),
        Poll::Pending => panic!("it waits for another task"),
    })
    .await
}

#[test]
fn thread_that_sends_a_request_has_the_answer_before_it_waits() {
    run(async {
        let (near, far) = in_process("thread").await;
        let handled_by = Arc::new(Mutex::new(None::<ThreadId>));
        let noted = handled_by.clone();
        let near = silent(near);
        let _far = serve(far, move |raw, reply| {
            *noted.lock().unwrap() = Some(thread::current().id());
            reply.send_slice(object_read(), &raw);
        });
        let answer = at_once(ask(&near, b"hot")).await.unwrap();
        assert_eq!(answer.raw, "hot");
        assert_eq!(*handled_by.lock().unwrap(), Some(thread::current().id()));
    });
}

#[test]
fn forwarded_request_is_handled_by_the_thread_that_sent_it() {
    run(async {
        let ((near, middle), (beyond, far)) = (in_process("forwarding").await, in_process("forwarded").await);
        let (near, beyond) = (silent(near), silent(beyond));
        let caller = beyond.caller.clone();
        let _middle = serve(middle, move |raw, reply| caller.forward(read(), vec![raw], reply.defer()));
        let _far = serve(far, |raw, reply| reply.send_checked(object_read(), &raw, wire::frame::crc32c(&raw)));
        assert_eq!(at_once(ask(&near, b"through")).await.unwrap().raw, "through");
    });
}

#[test]
fn request_is_forwarded_between_a_socket_and_the_process() {
    run(async {
        for is_near_in_process in [true, false] {
            let (first, second) = match is_near_in_process {
                true => (in_process("near").await, over_tcp().await),
                false => (over_tcp().await, in_process("far").await),
            };
            let (near, beyond) = (silent(first.0), silent(second.0));
            let caller = beyond.caller.clone();
            let _middle = serve(first.1, move |raw, reply| caller.forward(read(), vec![raw], reply.defer()));
            let _far = serve(second.1, |raw, reply| match &raw[..] {
                b"wrong" => reply.fail(&Error::new(ErrorKind::NotFound, "there is nothing")),
                _ => reply.defer().send(object_read(), vec![raw.clone(), raw]),
            });
            for _ in 0..3 {
                assert_eq!(ask(&near, b"twice ").await.unwrap().raw, "twice twice ");
                let error = ask(&near, b"wrong").await.unwrap_err();
                assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, "there is nothing"));
            }
        }
    });
}

#[test]
fn task_that_a_request_starts_belongs_to_the_runtime_of_the_server() {
    run(async {
        let (near, far) = in_process("runtime").await;
        let near = silent(near);
        let _far = serve(far, |raw, reply| {
            let deferred = reply.defer();
            tokio::spawn(async move { deferred.send(object_read(), vec![raw]) });
        });
        // This thread has no runtime of its own.
        let caller = near.caller.clone();
        let (sender, mut received) = mpsc::unbounded_channel();
        let asking = thread::spawn(move || {
            let pending = poll_once(caller.begin(read(), vec![Bytes::from_static(b"later")])).unwrap().unwrap();
            sender.send(pending).unwrap();
        });
        let mut pending = received.recv().await.unwrap();
        assert_eq!(pending.answer().await.unwrap().raw, "later");
        asking.join().unwrap();
    });
}

fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn bytes_with_a_wrong_checksum_do_not_arrive() {
    run(async {
        let (near, far) = in_process("checksum").await;
        let near = silent(near);
        let _far =
            serve(far, |raw, reply| reply.send_shared(object_read(), raw.clone(), wire::frame::crc32c(&raw) ^ 1));
        assert_eq!(ask(&near, b"damaged").await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn request_without_an_answer_ends_with_an_error() {
    run(async {
        let (near, far) = in_process("unanswered").await;
        let near = silent(near);
        let (sender, mut held) = mpsc::unbounded_channel::<DeferredResponder>();
        let far = serve(far, move |raw, reply| match &raw[..] {
            b"forgotten" => drop(reply),
            b"forgotten later" => drop(reply.defer()),
            _ => sender.send(reply.defer()).unwrap(),
        });
        for bytes in [b"forgotten".as_slice(), b"forgotten later"] {
            assert_eq!(ask(&near, bytes).await.unwrap_err().kind(), ErrorKind::Internal);
        }
        let mut pending = near.caller.begin(read(), vec![Bytes::from_static(b"held")]).await.unwrap();
        let deferred = held.recv().await.unwrap();
        far.mailbox.hang_up();
        far.end.await.unwrap();
        near.end.await.unwrap();
        drop(deferred);
        assert_eq!(pending.answer().await.unwrap_err().kind(), ErrorKind::Unknown, "it may have been carried out");
        let error = near.caller.call(read(), Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "it was not sent");
    });
}

#[test]
fn refused_request_ends_the_connection_with_the_reason() {
    run(async {
        let (near, far) = in_process("refused").await;
        let near = silent(near);
        let far = serve(far, |_, reply| reply.refuse(&Error::new(ErrorKind::Invalid, "not here")));
        assert!(ask(&near, b"violation").await.is_err());
        for end in [near.end, far.end] {
            let end = end.await.unwrap().to_string();
            assert!(end.contains("not here"), "{end}");
        }
    });
}

#[test]
fn mistake_of_a_service_does_not_reach_the_sender_of_a_request() {
    run(async {
        let (near, far) = in_process("mistake").await;
        let near = silent(near);
        let far = serve(far, |_, reply| {
            let _deferred = reply.defer();
            panic!("a mistake of this service");
        });
        assert!(ask(&near, b"anything").await.is_err());
        assert!(matches!(far.end.await.unwrap(), End::Closed));
        near.end.await.unwrap();
    });
}
