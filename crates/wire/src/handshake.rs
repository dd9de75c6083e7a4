//! How a connection opens: both sides say who they are before the first frame.
//!
//! ```text
//!  0          6         8        12
//! +----------+---------+--------+------------------+
//! | "MORTAR" | version | length | Hello or Welcome |
//! |          |   u16   |  u32   |                  |
//! +----------+---------+--------+------------------+
//! ```
//!
//! The side that dialled sends [`Hello`] and waits for [`Welcome`]. Whoever cannot go on says why, in words, and
//! closes.
//!
//! [`Hello`]: proto::Hello
//! [`Welcome`]: proto::Welcome

use std::io;

use model::{Error, ErrorKind, Result, SpaceId};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{convert, proto};

/// The version of the wire.
pub const VERSION: u16 = 1;
/// What this build can do beyond version 1: nothing yet.
pub const FEATURES: u64 = 0;
/// What this build cannot do without.
pub const REQUIRED: u64 = 0;

const MAGIC: [u8; 6] = *b"MORTAR";
const HEADER: usize = 12;
/// Bytes in the largest Hello or Welcome.
const MAX_MESSAGE: usize = 4096;

/// What whoever does not speak Mortar gets to read.
const STRANGER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This port speaks Mortar's own protocol, not HTTP. Programs of Mortar connect to it as mortar://HOST:PORT/SPACE.\n";

/// What the side that was dialled grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The space that the connection is about.
    pub space: SpaceId,
    /// Bytes in the largest frame that it takes.
    pub max_frame: u32,
    /// Bytes of content that one `Read` may ask for.
    pub max_read: u32,
    /// Requests that may be unanswered at a time; more wait unread.
    pub max_in_flight: u32,
}

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

/// What the first bytes of an opening say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
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
    Stranger,
}

/// Reads the first bytes of an opening.
#[must_use]
pub fn decode(bytes: &[u8]) -> Opening {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Opening::Stranger;
    }
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Opening::Short };
    let version = u16::from_le_bytes([header[6], header[7]]);
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length > MAX_MESSAGE { Opening::Stranger } else { Opening::Mortar { version, length } }
}

enum Heard<M> {
    Message(u16, Option<M>),
    Stranger(Vec<u8>),
}

/// Reads an opening, and no byte behind it.
async fn hear<M: Message + Default>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Heard<M>> {
    let mut header = Vec::with_capacity(HEADER);
    let (version, length) = loop {
        let room = HEADER - header.len();
        if room > 0 && stream.take(room as u64).read_buf(&mut header).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match decode(&header) {
            Opening::Mortar { version, length } => break (version, length),
            Opening::Short => {}
            Opening::Stranger => return Ok(Heard::Stranger(header)),
        }
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Heard::Message(version, M::decode(body.as_slice()).ok()))
}

/// Opens a connection that this side dialled.
///
/// Fails as [`ErrorKind::Unsupported`] if the other side does not speak Mortar, or not this version, and as whatever it
/// says if it refuses; as [`ErrorKind::Unavailable`] if the connection breaks.
pub async fn dial(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), space: &str, agent: &str) -> Result<Terms> {
    let broken = |error: io::Error| Error::new(ErrorKind::Unavailable, "the server hung up").caused_by(error);
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, message);
    let (features, required) = (FEATURES, REQUIRED);
    let hello = proto::Hello { features, required, space: space.to_owned(), agent: agent.to_owned() };
    stream.write_all(&encode(VERSION, &hello)).await.map_err(broken)?;
    let (version, welcome) = match hear::<proto::Welcome>(stream).await.map_err(broken)? {
        Heard::Message(version, welcome) => (version, welcome.and_then(|welcome| welcome.answer)),
        Heard::Stranger(bytes) => {
            let words = String::from_utf8_lossy(&bytes);
            return Err(unsupported(format!("what listens there is no server of Mortar; it said {words:?}")));
        }
    };
    let accepted = match welcome {
        Some(proto::welcome::Answer::Refused(error)) => return Err(error.into()),
        Some(proto::welcome::Answer::Accepted(accepted)) if version == VERSION => accepted,
        _ => return Err(unsupported(versions("the server", version, "this client"))),
    };
    if lacking(accepted.required, FEATURES) != 0 || lacking(REQUIRED, accepted.features) != 0 {
        let what = format!("server and client lack each other's features: server {accepted:?}, client {FEATURES:#x}");
        return Err(unsupported(what));
    }
    Ok(Terms {
        space: convert::space(accepted.space)?,
        max_frame: accepted.max_frame,
        max_read: accepted.max_read,
        max_in_flight: accepted.max_in_flight,
    })
}

/// The required features that are not among those that one can do.
fn lacking(required: u64, features: u64) -> u64 {
    required & !features
}

fn versions(other: &str, version: u16, own: &str) -> String {
    format!("{other} speaks version {version} of the wire, {own} version {VERSION}: upgrade the older one")
}

/// What the side that was dialled answers: the terms for a space, or why there are none.
pub trait Doorkeeper {
    /// The terms for whoever says `hello`.
    fn admit(&mut self, hello: &proto::Hello) -> Result<Terms>;
}

/// Opens a connection that the other side dialled: hears who it is, and answers as `door` decides.
///
/// If it is refused, it was told why, and the error says so.
pub async fn welcome(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: &mut impl Doorkeeper,
    agent: &str,
) -> Result<(proto::Hello, Terms)> {
    let broken = |error: io::Error| Error::new(ErrorKind::Unavailable, "the client hung up").caused_by(error);
    let heard = hear::<proto::Hello>(stream).await.map_err(broken)?;
    let decision = match heard {
        Heard::Stranger(bytes) => {
            stream.write_all(STRANGER.as_bytes()).await.map_err(broken)?;
            let words = String::from_utf8_lossy(&bytes).into_owned();
            return Err(Error::new(ErrorKind::Unsupported, format!("not a client of Mortar; it said {words:?}")));
        }
        Heard::Message(VERSION, Some(hello)) => admit(door, &hello).map(|terms| (hello, terms)),
        Heard::Message(version, _) if version != VERSION => {
            Err(Error::new(ErrorKind::Unsupported, versions("the client", version, "this server")))
        }
        Heard::Message(..) => Err(Error::new(ErrorKind::Invalid, "the first message of the connection is garbled")),
    };
    let answer = match &decision {
        Ok((_, terms)) => proto::welcome::Answer::Accepted(proto::Accepted {
            features: FEATURES,
            required: REQUIRED,
            agent: agent.to_owned(),
            space: u32::from(terms.space.0),
            max_frame: terms.max_frame,
            max_read: terms.max_read,
            max_in_flight: terms.max_in_flight,
        }),
        Err(error) => proto::welcome::Answer::Refused(error.into()),
    };
    let welcome = proto::Welcome { answer: Some(answer) };
    stream.write_all(&encode(VERSION, &welcome)).await.map_err(broken)?;
    decision
}

fn admit(door: &mut impl Doorkeeper, hello: &proto::Hello) -> Result<Terms> {
    let unknown = lacking(hello.required, FEATURES);
    if unknown != 0 {
        let what = format!("the client needs features {unknown:#x} that this server lacks: upgrade the server");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let missing = lacking(REQUIRED, hello.features);
    if missing != 0 {
        let what = format!("the client lacks features {missing:#x} that this server needs: upgrade the client");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    door.admit(hello)
}
