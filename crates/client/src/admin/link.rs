//! A connection that is reopened when it breaks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, Result, SpaceId};
use tokio::time;
use tracing::{debug, warn};
use wire::handshake::{Introduction, Terms};
use wire::link::{self, Answer, AnswerStream, Caller, Limits, Mailbox, NoService};
use wire::proto;
use wire::proto::request::Request;
use wire::tasks;

use super::ServerIdentity;
use crate::dial::{credentials, dial};
use crate::options::MAX_TIMEOUT;
use crate::{AdminOptions, Url};

/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 64 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The address of a server and the current connection, if any.
#[derive(Debug)]
pub(crate) struct Link {
    url: Url,
    options: AdminOptions,
    space: SpaceId,
    /// Who answered at first: no other server gets a request.
    identity: ServerIdentity,
    state: Mutex<State>,
    /// Held while connecting, so that many calls make one connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    session: Option<Arc<Session>>,
    is_closed: bool,
}

/// One connection, from its handshake to its end. Dropping it closes the connection.
#[derive(Debug)]
struct Session {
    caller: Caller,
}

/// A stream of answers on a separate connection.
pub(crate) struct OwnAnswers {
    answers: AnswerStream,
    session: Session,
}

impl OwnAnswers {
    /// Sends further requests on the connection.
    pub(crate) fn caller(&self) -> Caller {
        self.session.caller.clone()
    }
}

impl Link {
    pub(crate) async fn connect(url: Url, mut options: AdminOptions) -> Result<Arc<Self>> {
        options.retry = options.retry.min(MAX_TIMEOUT);
        options.patience = options.patience.map(|patience| patience.min(MAX_TIMEOUT));
        let (session, terms) = Session::open(&url, &options).await?;
        let state = State { session: Some(Arc::new(session)), is_closed: false };
        let (state, connecting) = (Mutex::new(state), tokio::sync::Mutex::new(()));
        let identity = ServerIdentity::of(&terms);
        Ok(Arc::new(Self { url, options, space: terms.space, identity, state, connecting }))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn space(&self) -> SpaceId {
        self.space
    }

    pub(crate) fn identity(&self) -> &ServerIdentity {
        &self.identity
    }

    /// Connects to the same server again.
    async fn reopen(&self) -> Result<Session> {
        let (session, terms) = Session::open(&self.url, &self.options).await?;
        self.identity.check(&ServerIdentity::of(&terms)).map_err(|error| {
            let what = format!("{} is the address of another server now: {}", self.url, error.message());
            Error::new(error.kind(), what)
        })?;
        if terms.space != self.space {
            let what = format!("the space of {} was removed, and there is another one of its name", self.url);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(session)
    }

    /// The current connection, or a new one, in one attempt.
    async fn session(&self) -> Result<Arc<Session>> {
        if let Some(session) = self.live()? {
            return Ok(session);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(session) = self.live()? {
            return Ok(session);
        }
        let session = Arc::new(self.reopen().await?);
        self.lock().session = Some(session.clone());
        Ok(session)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Result<Option<Arc<Session>>> {
        let state = self.lock();
        if state.is_closed {
            return Err(Error::new(ErrorKind::Invalid, "the client was closed"));
        }
        Ok(state.session.clone().filter(|session| !session.caller.is_closed()))
    }

    /// Sends a request that changes nothing, and repeats it until it is answered.
    pub(crate) async fn read(&self, request: Request) -> Result<Answer> {
        let mut patience = Patience::new(self.options.retry);
        loop {
            let error = match self.session().await {
                Ok(session) => match session.caller.call(request.clone(), Vec::new()).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            patience.wait_after(error).await?;
        }
    }

    /// Sends a request that must not be repeated. It waits for a connection as reads do, because nothing is sent without one.
    pub(crate) async fn once(&self, request: Request) -> Result<Answer> {
        self.ask(request, false).await
    }

    /// Sends a request, and returns what the server answers. If the answer is lost with the connection, the request is repeated if it may be.
    async fn ask(&self, request: Request, may_repeat: bool) -> Result<Answer> {
        let mut patience = Patience::new(self.options.retry);
        loop {
            let error = match self.session().await {
                Ok(session) => match session.caller.begin(request.clone(), Vec::new()).await {
                    Ok(mut pending) => match pending.answer().await {
                        Err(lost) if may_repeat && lost.kind() == ErrorKind::Unknown => lost,
                        answered => return answered,
                    },
                    Err(error) => error,
                },
                Err(error) => error,
            };
            patience.wait_after(error).await?;
        }
    }

    /// Sends a request that the server answers with the help of others, within the client's patience. The server knows whom it has waited for, so
    /// its errors are not passing ones.
    pub(crate) async fn ask_cluster(&self, request: Request) -> Result<Answer> {
        let only_reads = only_reads(&request);
        let asking = self.ask(request, only_reads);
        let Some(patience) = self.options.patience else { return asking.await };
        time::timeout(patience, asking).await.unwrap_or_else(|_| {
            let late = format!("{} has not answered within {patience:?}", self.url);
            Err(match only_reads {
                true => Error::new(ErrorKind::Unavailable, late),
                false => Error::new(ErrorKind::Unknown, format!("{late}: look whether it has done what was asked")),
            })
        })
    }

    /// Requests a stream of answers on a separate connection.
    pub(crate) async fn stream(&self, request: Request) -> Result<OwnAnswers> {
        self.live()?;
        let session = self.reopen().await?;
        Ok(OwnAnswers { answers: session.caller.stream(request)?, session })
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let Some(session) = state.session.take() {
            session.caller.hang_up();
        }
    }
}

/// Whether a request about the cluster changes nothing.
fn only_reads(request: &Request) -> bool {
    use proto::account::administer::Action;
    use proto::jobs::job_request::Request as OfJobs;
    use proto::members::member_request::Request as OfMembers;
    use proto::moves::r#move::Request as OfMoves;
    use proto::schema::describe::Request as OfClasses;
    match request {
        Request::Administer(asked) => matches!(asked.action, Some(Action::List(_) | Action::ListGrants(_))),
        Request::Describe(asked) => matches!(asked.request, Some(OfClasses::Show(_) | OfClasses::History(_))),
        Request::JobRequest(asked) => matches!(asked.request, Some(OfJobs::List(_) | OfJobs::Show(_))),
        Request::MemberRequest(asked) => matches!(asked.request, Some(OfMembers::List(_))),
        Request::Move(asked) => matches!(asked.request, Some(OfMoves::Show(_))),
        _ => false,
    }
}

impl Session {
    async fn open(url: &Url, options: &AdminOptions) -> Result<(Self, Terms)> {
        let space = if options.spaceless { "" } else { &url.space };
        let mut introduction = Introduction::new(space, &options.agent);
        introduction.credentials = credentials(options.credentials.as_ref(), url.user.as_deref());
        introduction.insecure = options.insecure;
        // Shorter than the client's patience, so that the answer arrives in time.
        introduction.catalog_timeout = options.patience.map(|patience| patience * 9 / 10);
        let (stream, terms) = dial(&url.address, options.tls.as_ref(), &introduction, options.timeout).await?;
        let mailbox = Arc::new(Mailbox::default());
        // A server may stop reading for a while, for instance while its disk is slow.
        let limits = Limits { write_stall: None, ..Limits::default() };
        let link = link::Link::new(stream, NoService, limits, terms.max_frame, mailbox.clone());
        let url = url.clone();
        tasks::spawn(async move {
            match link::drive(link).await {
                link::End::Closed => debug!(%url, "closed the connection"),
                end => warn!(%url, %end, "the connection ended"),
            }
        });
        Ok((Self { caller: Caller::new(mailbox, BUDGET) }, terms))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.caller.hang_up();
    }
}

impl OwnAnswers {
    pub(crate) async fn next(&mut self) -> Result<Answer> {
        self.answers.next().await
    }
}

/// The time for retries, and the pause between them, which doubles each time.
struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    fn new(retry: Duration) -> Self {
        Self { until: Instant::now() + retry, pause: FIRST_PAUSE }
    }

    /// Pauses if a retry may help after `error`. Returns it if not, or if the time is up.
    async fn wait_after(&mut self, error: Error) -> Result<()> {
        let is_passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
        if !is_passing {
            return Err(error);
        }
        if Instant::now() + self.pause > self.until {
            // A read that got no answer changed nothing, whether or not it was sent.
            return Err(match error.kind() {
                ErrorKind::Unknown => {
                    Error::new(ErrorKind::Unavailable, "the server cannot be reached").with_source(error)
                }
                _ => error,
            });
        }
        debug!(%error, pause = ?self.pause, "trying again");
        time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::net::TcpListener;
    use wire::handshake::{self, HandshakeAuthenticator, Permission};
    use wire::link::{Incoming, Responder, Service};
    use wire::proto::members::member_request::Request as OfMembers;
    use wire::proto::members::{List, MemberRequest};
    use wire::proto::response::Response;
    use wire::transport::{RemoteEndpoint, Stream};

    use super::*;
    use crate::AdminClient;

    struct AdmitAll;

    impl HandshakeAuthenticator for AdmitAll {
        async fn admit(&mut self, _: &proto::Hello, _: &RemoteEndpoint) -> Result<Terms> {
            Ok(Terms {
                space: SpaceId(0),
                max_frame: 1 << 20,
                max_in_flight: 8,
                brick: 0,
                opening: None,
                permission: Permission::None,
                time_ms: 0,
                cluster: String::new(),
            })
        }
    }

    /// Counts requests: hangs up at each odd one, and answers the others.
    struct EveryOther {
        mailbox: Arc<Mailbox>,
        requests: Arc<AtomicU32>,
    }

    impl Service for EveryOther {
        fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
            if self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                self.mailbox.hang_up();
                drop(reply.defer());
            } else {
                reply.send(Response::MemberAnswer(proto::members::MemberAnswer::default()));
            }
        }
    }

    #[test]
    fn requests_that_only_read_are_told_from_those_that_change_something() {
        use proto::account::administer::Action;
        use proto::jobs::job_request::Request as OfJobs;
        use proto::moves::r#move::Request as OfMoves;
        use proto::schema::describe::Request as OfClasses;
        let of_jobs = |asked| Request::JobRequest(proto::jobs::JobRequest { request: Some(asked) });
        let of_members = |asked| Request::MemberRequest(MemberRequest { request: Some(asked) });
        let of_moves = |asked| Request::Move(proto::moves::Move { request: Some(asked) });
        let of_accounts = |action| Request::Administer(proto::account::Administer { action: Some(action) });
        let of_classes = |asked| {
            let space = "main".to_owned();
            Request::Describe(Box::new(proto::schema::Describe { space, request: Some(asked) }))
        };
        let reads = [
            of_jobs(OfJobs::List(Default::default())),
            of_jobs(OfJobs::Show(1)),
            of_members(OfMembers::List(List {})),
            of_moves(OfMoves::Show(Default::default())),
            of_accounts(Action::List(Default::default())),
            of_accounts(Action::ListGrants(Default::default())),
            of_classes(OfClasses::Show(Default::default())),
            of_classes(OfClasses::History(Default::default())),
        ];
        for request in &reads {
            assert!(only_reads(request), "{request:?}");
        }
        let changes = [
            of_jobs(OfJobs::Pause(1)),
            of_members(OfMembers::RemoveBrick(1)),
            of_moves(OfMoves::Drain(Default::default())),
            of_accounts(Action::AddGroup(Default::default())),
            Request::SetSpace(Default::default()),
        ];
        for request in &changes {
            assert!(!only_reads(request), "{request:?}");
        }
    }

    /// A server that answers every other request, and the number of requests that it gets.
    async fn every_other_answered() -> (String, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("mortar://{}/main", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU32::new(0));
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let mut stream = Stream::Tcp(socket);
                handshake::accept(&mut stream, &mut AdmitAll, "test").await.unwrap();
                let mailbox = Arc::new(Mailbox::default());
                let service = EveryOther { mailbox: mailbox.clone(), requests: counted.clone() };
                tokio::spawn(link::drive(link::Link::new(stream, service, Limits::default(), 1 << 20, mailbox)));
            }
        });
        (url, requests)
    }

    #[tokio::test]
    async fn lost_request_is_repeated_if_it_changes_nothing() {
        let (url, requests) = every_other_answered().await;
        let client = AdminClient::connect(&url).await.unwrap();
        let ask = async |request| client.cluster_members(MemberRequest { request: Some(request) }).await;
        assert!(ask(OfMembers::List(List {})).await.is_ok());
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        let lost = ask(OfMembers::RemoveBrick(1)).await.unwrap_err();
        assert_eq!((lost.kind(), requests.load(Ordering::Relaxed)), (ErrorKind::Unknown, 3), "{lost}");
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_between_retries_double_up_to_the_longest() {
        let mut patience = Patience::new(Duration::from_secs(3_600));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let begun = time::Instant::now();
            patience.wait_after(Error::new(ErrorKind::Unavailable, "it is away")).await.unwrap();
            pauses.push(begun.elapsed());
        }
        assert_eq!((pauses[0], pauses[9]), (FIRST_PAUSE, LONGEST_PAUSE));
        assert!(pauses.windows(2).all(|pair| pair[1] == (pair[0] * 2).min(LONGEST_PAUSE)), "{pauses:?}");
        let denied = patience.wait_after(Error::new(ErrorKind::Denied, "you may not")).await.unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::Denied, "a retry does not help");
    }

    #[tokio::test]
    async fn closed_client_sends_no_more_requests() {
        let (url, requests) = every_other_answered().await;
        let client = AdminClient::connect(&url).await.unwrap();
        client.close();
        let refused = client.cluster_members(MemberRequest { request: Some(OfMembers::List(List {})) }).await;
        assert!(refused.is_err() && requests.load(Ordering::Relaxed) == 0, "{refused:?}");
    }

    #[tokio::test]
    async fn lost_request_is_not_repeated_without_time_for_retries() {
        let (url, requests) = every_other_answered().await;
        let options = AdminOptions { retry: Duration::ZERO, ..AdminOptions::default() };
        let client = AdminClient::connect_with(&url, options).await.unwrap();
        let lost = client.cluster_members(MemberRequest { request: Some(OfMembers::List(List {})) }).await.unwrap_err();
        assert_eq!((lost.kind(), requests.load(Ordering::Relaxed)), (ErrorKind::Unavailable, 1), "{lost}");
    }

    #[test]
    fn server_is_the_same_if_cluster_and_brick_are() {
        let identity = |cluster: &str, brick| ServerIdentity { cluster: cluster.to_owned(), brick };
        let brick = identity("c1", 2);
        for same in [identity("c1", 2), identity("", 2)] {
            assert!(brick.check(&same).is_ok() && same.check(&brick).is_ok(), "{same:?}");
        }
        for (other, what) in [
            (identity("c1", 3), "brick 3 answers where brick 2 was expected"),
            (identity("c1", 0), "a server that is not a brick answers where brick 2 was expected"),
            (identity("", 3), "brick 3 answers where brick 2 was expected"),
            (identity("c2", 2), "brick 2 of cluster c2 answers where brick 2 of cluster c1 was expected"),
            (identity("c2", 0), "a server of cluster c2 answers where brick 2 of cluster c1 was expected"),
        ] {
            let error = brick.check(&other).unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Unavailable, what));
        }
    }
}
