//! The servers above a redirector: peer servers, or redirectors nearer to them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{Error, ErrorKind, NodeId, Result};
use tokio::time;
use wire::cluster;
use wire::handshake::{self, ClientNumber, Credentials, Introduction, Role, Terms};
use wire::link::CallConnection;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, Stream, tls};

use crate::auth::{ClusterCredentials, is_member};

/// How long one attempt to connect may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a redirector has to know before it serves a space.
pub(super) struct SpaceSetup {
    /// The logical nodes of the space.
    pub(super) nodes: Vec<NodeId>,
    /// A number that no other process or client has.
    pub(super) client: ClientNumber,
}

/// The servers above, of which one is used at a time.
pub(super) struct Upstream {
    addresses: Vec<Address>,
    credentials: ClusterCredentials,
    /// TLS for connections in the names of members: with the certificate of this process, the server above would take each member for
    /// a process of the cluster.
    member_tls: Option<tls::Client>,
    /// The place of the address that is tried first: of the one that answered last, or after one that does not answer.
    preferred: AtomicUsize,
}

impl Upstream {
    /// Servers that this process connects to with its credentials.
    ///
    /// # Errors
    /// If the files of the trusted authorities cannot be read any more.
    pub(super) fn new(addresses: Vec<Address>, credentials: ClusterCredentials) -> Result<Self> {
        let member_tls = credentials.tls.as_ref().map(tls::Client::without_identity).transpose()?;
        Ok(Self { addresses, credentials, member_tls, preferred: AtomicUsize::new(0) })
    }

    /// Connects in the name of this process, about a space, with the number that it has there.
    ///
    /// # Errors
    /// As [`Upstream::dial`].
    pub(super) async fn dial_space(&self, space: &str, client: Option<ClientNumber>) -> Result<(Stream, Terms)> {
        let introduction = Introduction { client, ..self.credentials.introduction(space, Role::Redirector) };
        self.dial(&introduction, self.credentials.tls.as_ref()).await
    }

    /// How many servers there are.
    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The address of one of them.
    pub(super) fn address(&self, place: usize) -> &Address {
        &self.addresses[place]
    }

    /// Connects to one of them in the name of this process, about the whole cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if it does not answer; those of its refusal.
    pub(super) async fn dial_place(&self, place: usize) -> Result<(Stream, Terms)> {
        let introduction = self.credentials.introduction("", Role::Redirector);
        self.dial_one(&self.addresses[place], &introduction, self.credentials.tls.as_ref()).await
    }

    /// Connects in the name of a member that has sent this `Hello`.
    ///
    /// # Errors
    /// As [`Upstream::dial`]; [`ErrorKind::Denied`] for a process of the cluster that is no redirector.
    pub(super) async fn dial_for(&self, hello: &proto::Hello) -> Result<(Stream, Terms)> {
        let role = hello.role();
        if matches!(role, Role::Brick | Role::Peer) {
            let what = "a redirector serves clients: connect bricks and peer servers to the meta-server";
            return Err(Error::new(ErrorKind::Denied, what));
        }
        self.check_secret(hello)?;
        let credentials = Credentials { user: hello.user.clone(), password: hello.password.clone() };
        let patience = Some(hello.catalog_timeout_ms).filter(|given| *given > 0);
        let introduction = Introduction {
            role,
            credentials: Some(credentials),
            insecure: self.credentials.insecure,
            catalog_timeout: patience.map(|given| Duration::from_millis(given.into())),
            client: ClientNumber::of_hello(hello),
            ..Introduction::new(&*hello.space, &*hello.agent)
        };
        self.dial(&introduction, self.member_tls.as_ref()).await
    }

    /// Checks the secret of the cluster, if a member shows one: the server above counts a wrong one as a guess of this process.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    fn check_secret(&self, hello: &proto::Hello) -> Result<()> {
        let is_secret = is_member(hello) && !hello.password.is_empty();
        let is_right = || self.credentials.secret.as_ref().is_some_and(|own| own.matches(&hello.password));
        match is_secret && !is_right() {
            true => Err(Error::new(ErrorKind::Denied, "this is not the secret of this redirector's cluster")),
            false => Ok(()),
        }
    }

    /// Connects to the server that accepted last, or to the next one that answers. A server that does not answer, or refuses, is not tried first
    /// again.
    ///
    /// # Errors
    /// That of the first server that refuses; [`ErrorKind::Unavailable`] if none answers.
    async fn dial(&self, introduction: &Introduction, tls: Option<&tls::Client>) -> Result<(Stream, Terms)> {
        let (count, first) = (self.addresses.len(), self.preferred.load(Ordering::Relaxed));
        let mut last = Error::new(ErrorKind::Invalid, "no server above is named");
        for place in (first..first + count).map(|place| place % count) {
            let attempt = Attempt { upstream: self, place };
            match self.dial_one(&self.addresses[place], introduction, tls).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(refusal) => return Err(refusal),
                accepted => {
                    attempt.prefer();
                    return accepted;
                }
            }
        }
        Err(last)
    }

    async fn dial_one(
        &self,
        address: &Address,
        introduction: &Introduction,
        tls: Option<&tls::Client>,
    ) -> Result<(Stream, Terms)> {
        let dialled = time::timeout(DIAL_TIMEOUT, async {
            let mut stream = Stream::dial(address, tls).await?;
            let terms = handshake::introduce(&mut stream, introduction).await?;
            Ok((stream, terms))
        });
        dialled.await.unwrap_or_else(|_| {
            let what = format!("{address}, which is above this redirector, does not answer within {DIAL_TIMEOUT:?}");
            Err(Error::new(ErrorKind::Unavailable, what))
        })
    }

    /// Asks for what this process has to know before it serves a space.
    ///
    /// # Errors
    /// As [`Upstream::dial`]; [`ErrorKind::Unavailable`] if the server does not answer.
    pub(super) async fn fetch_setup(&self, space: &str) -> Result<SpaceSetup> {
        let (stream, terms) = self.dial_space(space, None).await?;
        let connection = CallConnection::open(stream, terms.max_frame);
        let asked = time::timeout(DIAL_TIMEOUT, async {
            let numbers = connection.ask(Request::GetNumbers(proto::GetNumbers { count: 1 })).await?;
            Ok::<_, Error>((numbers, connection.ask(Request::GetSpace(proto::GetSpace {})).await?))
        });
        let late = |_| Err(Error::new(ErrorKind::Unavailable, "the server above this redirector does not answer"));
        let answered = asked.await.unwrap_or_else(late);
        let (Response::Numbers(numbers), Response::ConnectionSpace(of)) = answered? else {
            return Err(Error::new(ErrorKind::Invalid, "the server above sends an answer to something else"));
        };
        let nodes = of.nodes.into_iter().map(cluster::node).collect::<Result<Vec<_>>>()?;
        Ok(SpaceSetup { nodes, client: ClientNumber::first(numbers)? })
    }
}

/// An attempt to connect. If the server does not accept it, or the caller gives up, the next call begins with the next server.
struct Attempt<'a> {
    upstream: &'a Upstream,
    place: usize,
}

impl Attempt<'_> {
    fn prefer(self) {
        self.upstream.preferred.store(self.place, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let next = (self.place + 1) % self.upstream.addresses.len();
        // Another call may have found a server meanwhile.
        let preferred = &self.upstream.preferred;
        let _ = preferred.compare_exchange(self.place, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn server_behind_others_that_do_not_answer_is_reached_by_callers_with_little_patience() {
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let addresses = listeners.iter().map(|at| at.local_addr().unwrap().to_string().parse().unwrap()).collect();
        let upstream = Upstream::new(addresses, ClusterCredentials::default()).unwrap();
        // These servers send nothing. The caller waits for less than two attempts.
        assert!(time::timeout(DIAL_TIMEOUT * 3 / 2, upstream.dial_space("main", None)).await.is_err());
        assert_eq!(upstream.preferred.load(Ordering::Relaxed), 2, "the third is next");
        assert!(time::timeout(DIAL_TIMEOUT / 2, upstream.dial_space("main", None)).await.is_err());
        assert_eq!(upstream.preferred.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn server_that_refuses_is_not_tried_first_again() {
        let (gone, refusing) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let addresses = [&gone, &refusing].map(|at| at.local_addr().unwrap().to_string().parse().unwrap());
        drop(gone);
        let upstream = Upstream::new(addresses.to_vec(), ClusterCredentials::default()).unwrap();
        let refuse = async {
            let (mut stream, _) = refusing.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        };
        let (dialled, ()) = tokio::join!(upstream.dial_space("main", None), refuse);
        assert_ne!(dialled.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(upstream.preferred.load(Ordering::Relaxed), 0, "the first one may be back");
    }
}
