//! The opening of a connection: both sides introduce themselves before the first frame.
//!
//! ```text
//!  0          6         8        12
//! +----------+---------+--------+------------------+
//! | "MORTAR" | version | length | Hello or Welcome |
//! |          |   u16   |  u32   |                  |
//! +----------+---------+--------+------------------+
//! ```
//!
//! The side that dialled sends [`Hello`] and waits for [`Welcome`]. A side that cannot continue sends the reason as text and
//! closes. Over TLS this follows the negotiation. A port takes either TLS or plain connections.
//!
//! [`Hello`]: proto::Hello
//! [`Welcome`]: proto::Welcome

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, Result, SpaceId, limits};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::transport::tls::{self, ErrorContext};
use crate::transport::{RemoteEndpoint, Stream};
use crate::{convert, proto};

pub use crate::proto::Role;
pub use crate::proto::account::Permission;
pub use crate::proto::cluster::Witnessed;

/// The version of the wire.
pub const VERSION: u16 = 1;
/// Feature bits that this build supports.
pub const FEATURES: u64 = 0;
/// Feature bits that this build requires of the other side.
pub const REQUIRED: u64 = 0;

const MAGIC: [u8; 6] = *b"MORTAR";
const HEADER: usize = 12;
/// Bytes in the largest Hello or Welcome.
const MAX_MESSAGE: usize = 4096;
/// Bytes in the longest name of a user.
pub const MAX_USER: usize = 255;
/// Bytes in the longest password.
pub const MAX_PASSWORD: usize = 1024;
/// Bytes that are read after a refusal, so that the refusal arrives.
const MAX_DRAIN: u64 = 64 << 10;

/// The answer to a client that does not speak Mortar's protocol.
const HTTP_REPLY: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This port speaks Mortar's own protocol, not HTTP. Programs of Mortar connect to it as mortar://HOST:PORT/SPACE.\n";

const HTTP_REPLY_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This port speaks Mortar's own protocol over TLS. Programs of Mortar connect to it as mortars://HOST:PORT/SPACE.\n";

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for proto::Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            features,
            required,
            space,
            agent,
            role,
            user,
            password: _,
            catalog_timeout_ms,
            witnessed,
            cluster,
            client_number,
            client_token: _,
        } = self;
        let mut hello = f.debug_struct("Hello");
        hello.field("features", features).field("required", required).field("space", space).field("agent", agent);
        hello
            .field("role", role)
            .field("user", user)
            .field("catalog_timeout_ms", catalog_timeout_ms)
            .field("witnessed", witnessed)
            .field("cluster", cluster)
            .field("client_number", client_number)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for proto::account::AddUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, hash: _, groups } = self;
        f.debug_struct("AddUser").field("name", name).field("groups", groups).finish_non_exhaustive()
    }
}

impl fmt::Debug for proto::account::SetPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetPassword").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The number of a client, which is in its sessions and transactions, and what proves that it was given to it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientNumber {
    /// The number; never 0.
    pub number: u64,
    /// What the peer server that gave the number has sent with it.
    pub token: Bytes,
}

impl ClientNumber {
    /// The first of the numbers in an answer.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there is none; [`ErrorKind::Invalid`] if it leaves no room for sessions.
    pub fn first(numbers: proto::Numbers) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorKind::Unsupported,
                "the server gives numbers without tokens: it is of an older version; update it",
            )
        };
        if numbers.first > limits::CLIENT_NUMBER {
            let what =
                format!("the server gives the number {}; the largest is {}", numbers.first, limits::CLIENT_NUMBER);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let token = numbers.tokens.into_iter().next().filter(|_| numbers.first > 0).ok_or_else(invalid)?;
        Ok(Self { number: numbers.first, token })
    }

    /// That of the sender of `hello`, if it names one.
    #[must_use]
    pub fn of_hello(hello: &proto::Hello) -> Option<Self> {
        (hello.client_number > 0).then(|| Self { number: hello.client_number, token: hello.client_token.clone() })
    }
}

impl fmt::Debug for ClientNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientNumber").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What the side that dialled sends about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The space that the connection is about.
    pub space: String,
    /// The software and its version, for logs.
    pub agent: String,
    /// Its role.
    pub role: Role,
    /// Its user and password, if it does not authenticate by its certificate.
    pub credentials: Option<Credentials>,
    /// Whether the password may be sent over a connection that others can read.
    pub insecure: bool,
    /// How long it waits for answers for which the server has to ask the meta-server; `None`: the server decides.
    pub catalog_timeout: Option<Duration>,
    /// The highest positions that it saw of the log that the server serves: one for each opening, rising.
    pub witnessed: Vec<Witnessed>,
    /// The number of its cluster; empty if it does not know it.
    pub cluster: String,
    /// Its number, if it is a client that was given one.
    pub client: Option<ClientNumber>,
}

impl Introduction {
    /// The introduction of an anonymous client.
    #[must_use]
    pub fn new(space: impl Into<String>, agent: impl Into<String>) -> Self {
        let (space, agent) = (space.into(), agent.into());
        Self {
            space,
            agent,
            role: Role::Client,
            credentials: None,
            insecure: false,
            catalog_timeout: None,
            witnessed: Vec::new(),
            cluster: String::new(),
            client: None,
        }
    }

    fn hello(&self, peer: &RemoteEndpoint) -> Result<proto::Hello> {
        let Credentials { user, password } =
            self.credentials.clone().unwrap_or(Credentials { user: String::new(), password: String::new() });
        if user.len() > MAX_USER || password.len() > MAX_PASSWORD {
            let what = format!("a user's name has at most {MAX_USER} bytes, a password {MAX_PASSWORD}");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        if !password.is_empty() && !peer.is_private && !self.insecure {
            let what =
                "others could read the password in transit: connect over TLS (mortars://), or allow that explicitly";
            return Err(Error::new(ErrorKind::Denied, what));
        }
        let (space, agent, role) = (self.space.clone(), self.agent.clone(), self.role as i32);
        let ClientNumber { number: client_number, token: client_token } = self.client.clone().unwrap_or_default();
        // 0 on the wire means that there is no limit.
        let catalog_timeout_ms =
            self.catalog_timeout.map_or(0, |it| u32::try_from(it.as_millis()).unwrap_or(u32::MAX).max(1));
        Ok(proto::Hello {
            features: FEATURES,
            required: REQUIRED,
            space,
            agent,
            role,
            user,
            password,
            catalog_timeout_ms,
            witnessed: self.witnessed.clone(),
            cluster: self.cluster.clone(),
            client_number,
            client_token,
        })
    }
}

/// What the server grants a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The space that the connection is about.
    pub space: SpaceId,
    /// Bytes in the largest frame that it takes.
    pub max_frame: u32,
    /// Requests that may be unanswered at a time; the server does not read more.
    pub max_in_flight: u32,
    /// The number of the brick, if the server is one of a cluster; 0 otherwise.
    pub brick: u32,
    /// The opening of the brick and a forced position of its log, if a catalogue knows them.
    pub opening: Option<Witnessed>,
    /// What the caller may do in the space; none where the server decides by request.
    pub permission: Permission,
    /// The time of the cluster when it was granted, in milliseconds since 1970; 0 if the server does not know it (L2).
    pub time_ms: u64,
    /// The number of the cluster; empty if the server does not know it.
    pub cluster: String,
}

/// The longest number of a cluster, in bytes.
const MAX_CLUSTER: usize = 64;

/// The bytes of an opening with this message.
#[must_use]
pub fn encode(version: u16, message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// What the first bytes of an opening are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// Mortar, of this version, with a message of this many bytes.
    Mortar {
        /// The sender's version.
        version: u16,
        /// Bytes of the message.
        length: usize,
    },
    /// Too few bytes to tell.
    Short,
    /// Something else.
    NotMortar,
}

/// Reads the first bytes of an opening.
#[must_use]
pub fn decode(bytes: &[u8]) -> Preamble {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Preamble::NotMortar;
    }
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Preamble::Short };
    let version = u16::from_le_bytes([header[6], header[7]]);
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length > MAX_MESSAGE { Preamble::NotMortar } else { Preamble::Mortar { version, length } }
}

enum Received<M> {
    Message(u16, Option<M>),
    NotMortar(Vec<u8>),
}

/// Reads an opening and no byte beyond it.
async fn read_message<M: Message + Default>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Received<M>> {
    let mut header = Vec::with_capacity(HEADER);
    let (version, length) = loop {
        let room = HEADER - header.len();
        if room > 0 && stream.take(room as u64).read_buf(&mut header).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match decode(&header) {
            Preamble::Mortar { version, length } => break (version, length),
            Preamble::Short => {}
            Preamble::NotMortar => return Ok(Received::NotMortar(header)),
        }
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Received::Message(version, M::decode(body.as_slice()).ok()))
}

/// Opens a connection that this side dialled, as an anonymous client: see [`introduce`].
pub async fn dial(stream: &mut Stream, space: &str, agent: &str) -> Result<Terms> {
    introduce(stream, &Introduction::new(space, agent)).await
}

/// Opens a connection that this side dialled.
///
/// Fails as [`ErrorKind::Unsupported`] if the other side does not speak Mortar's protocol or speaks another version, and with the
/// error that it sends if it refuses; as [`ErrorKind::Unavailable`] if the connection breaks; as [`ErrorKind::Denied`] if a password would
/// be sent where others can read it, or the other side refuses this side's certificate.
pub async fn introduce(stream: &mut Stream, introduction: &Introduction) -> Result<Terms> {
    // A server checks a client's certificate after the client has sent its first bytes.
    let broken = |error: io::Error| match ErrorContext::Dialled("the server").explain_tls(&error) {
        Some(trouble) => trouble.with_source(error),
        None => Error::new(ErrorKind::Unavailable, "the server hung up").with_source(error),
    };
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, message);
    let hello = introduction.hello(&stream.peer())?;
    write_and_flush(stream, &encode(VERSION, &hello)).await.map_err(broken)?;
    let (version, welcome) = match read_message::<proto::Welcome>(stream).await.map_err(broken)? {
        Received::Message(version, welcome) => (version, welcome.and_then(|welcome| welcome.answer)),
        Received::NotMortar(bytes) => {
            let words = String::from_utf8_lossy(&bytes);
            return Err(unsupported(format!("the server there is not a Mortar server; it sent {words:?}")));
        }
    };
    let accepted = match welcome {
        Some(proto::welcome::Answer::Refused(error)) => return Err(error.into()),
        Some(proto::welcome::Answer::Accepted(accepted)) if version == VERSION => accepted,
        _ => return Err(unsupported(version_mismatch("the server", version, "this client"))),
    };
    if missing_features(accepted.required, FEATURES) != 0 || missing_features(REQUIRED, accepted.features) != 0 {
        let what = format!("server and client lack each other's features: server {accepted:?}, client {FEATURES:#x}");
        return Err(unsupported(what));
    }
    if accepted.cluster.len() > MAX_CLUSTER {
        return Err(convert::invalid("the number of the cluster is too long"));
    }
    Ok(Terms {
        space: convert::space(accepted.space)?,
        max_frame: accepted.max_frame,
        max_in_flight: accepted.max_in_flight,
        brick: accepted.brick,
        opening: accepted.opening,
        permission: accepted.permission(),
        time_ms: convert::time_ms(accepted.time_ms)?,
        cluster: accepted.cluster,
    })
}

/// The required features that are not supported.
fn missing_features(required: u64, features: u64) -> u64 {
    required & !features
}

fn version_mismatch(other: &str, version: u16, own: &str) -> String {
    format!("{other} speaks version {version} of the wire, {own} version {VERSION}: upgrade the older one")
}

/// Decides whether the server admits a connection.
pub trait HandshakeAuthenticator {
    /// The terms for `peer`, which sent `hello`. The caller has checked that the role exists and the lengths of user and password.
    /// Whether these are right is decided here. May take long, but must not block the thread.
    fn admit(&mut self, hello: &proto::Hello, peer: &RemoteEndpoint) -> impl Future<Output = Result<Terms>> + Send;
}

/// Opens a connection that the other side dialled: reads its `Hello` and lets `door` decide.
///
/// # Errors
/// The reason of a refusal, which the other side was sent too.
pub async fn accept(
    stream: &mut Stream,
    door: &mut impl HandshakeAuthenticator,
    agent: &str,
) -> Result<(proto::Hello, Terms)> {
    let broken = |error| ErrorContext::Accepted.explain(error);
    let received = read_message::<proto::Hello>(stream).await.map_err(broken)?;
    let decision = match received {
        Received::NotMortar(bytes) => {
            write_and_drain(stream, HTTP_REPLY.as_bytes()).await.map_err(broken)?;
            return Err(Error::new(ErrorKind::Unsupported, describe_non_mortar(&bytes)));
        }
        Received::Message(VERSION, Some(hello)) => {
            let peer = stream.peer();
            admit(door, &hello, &peer).await.map(|terms| (hello, terms))
        }
        Received::Message(version, _) if version != VERSION => {
            Err(Error::new(ErrorKind::Unsupported, version_mismatch("the client", version, "this server")))
        }
        Received::Message(..) => Err(Error::new(ErrorKind::Invalid, "the first message of the connection is garbled")),
    };
    let answer = match &decision {
        Ok((_, terms)) => proto::welcome::Answer::Accepted(proto::Accepted {
            features: FEATURES,
            required: REQUIRED,
            agent: agent.to_owned(),
            space: u32::from(terms.space.0),
            max_frame: terms.max_frame,
            max_in_flight: terms.max_in_flight,
            brick: terms.brick,
            opening: terms.opening,
            permission: terms.permission.into(),
            time_ms: terms.time_ms,
            cluster: terms.cluster.clone(),
        }),
        Err(error) => proto::welcome::Answer::Refused(error.into()),
    };
    let welcome = proto::Welcome { answer: Some(answer) };
    write_and_flush(stream, &encode(VERSION, &welcome)).await.map_err(broken)?;
    decision
}

async fn write_and_flush(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Sends the last bytes of a connection and reads what is on its way: closing a socket with unread bytes discards what it sent.
async fn write_and_drain(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    write_and_flush(stream, bytes).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MAX_DRAIN), &mut tokio::io::sink()).await?;
    Ok(())
}

fn describe_non_mortar(bytes: &[u8]) -> String {
    if bytes.first() == Some(&tls::HANDSHAKE) {
        return "a client that speaks TLS, which this port does not: it should connect as mortar://".to_owned();
    }
    format!("not a Mortar client; it sent {:?}", String::from_utf8_lossy(bytes))
}

/// Tells a client without TLS that this port requires it. Returns the error for this side.
pub(crate) async fn refuse_plain(stream: &mut Stream) -> Error {
    let error = Error::new(ErrorKind::Unsupported, "this port speaks TLS: connect to it as mortars://HOST:PORT/SPACE");
    let refused = proto::Welcome { answer: Some(proto::welcome::Answer::Refused((&error).into())) };
    let received = match read_message::<proto::Hello>(stream).await {
        Ok(Received::Message(..)) => write_and_drain(stream, &encode(VERSION, &refused)).await,
        Ok(Received::NotMortar(_)) => write_and_drain(stream, HTTP_REPLY_TLS.as_bytes()).await,
        Err(error) => Err(error),
    };
    let refusal = Error::new(ErrorKind::Unsupported, "a client without TLS, which this port speaks");
    match received {
        Ok(()) => refusal,
        Err(error) => refusal.with_source(error),
    }
}

async fn admit(door: &mut impl HandshakeAuthenticator, hello: &proto::Hello, peer: &RemoteEndpoint) -> Result<Terms> {
    let unknown = missing_features(hello.required, FEATURES);
    if unknown != 0 {
        let what = format!("the client needs features {unknown:#x} that this server lacks: upgrade the server");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let missing = missing_features(REQUIRED, hello.features);
    if missing != 0 {
        let what = format!("the client lacks features {missing:#x} that this server needs: upgrade the client");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    if Role::try_from(hello.role).is_err() {
        let what = format!("this server knows no role {}: upgrade it", hello.role);
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    if hello.user.len() > MAX_USER || hello.password.len() > MAX_PASSWORD {
        let what = format!("a user's name has at most {MAX_USER} bytes, a password {MAX_PASSWORD}");
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    if hello.cluster.len() > MAX_CLUSTER {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the number of a cluster has at most {MAX_CLUSTER} bytes"),
        ));
    }
    door.admit(hello, peer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_that_leaves_no_room_for_sessions_is_refused() {
        let numbers = |first| proto::Numbers { first, tokens: vec![Bytes::from_static(b"token")] };
        assert_eq!(ClientNumber::first(numbers(limits::CLIENT_NUMBER)).unwrap().number, limits::CLIENT_NUMBER);
        for first in [0, limits::CLIENT_NUMBER + 1, u64::MAX] {
            assert!(ClientNumber::first(numbers(first)).is_err(), "{first}");
        }
    }

    #[test]
    fn password_is_sent_over_private_connections_or_if_explicitly_allowed() {
        let credentials = Some(Credentials { user: "alice".to_owned(), password: "secret".to_owned() });
        let alice = Introduction { credentials, ..Introduction::new("main", "test") };
        let (private, open) =
            (RemoteEndpoint { is_private: true, ..RemoteEndpoint::default() }, RemoteEndpoint::default());
        let refused = alice.hello(&open).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.message().contains("mortars://"), "{refused}");
        for hello in [alice.hello(&private), Introduction { insecure: true, ..alice }.hello(&open)] {
            assert_eq!(hello.unwrap().password, "secret");
        }
        assert!(Introduction::new("main", "test").hello(&open).is_ok(), "there is no password");
    }
}
