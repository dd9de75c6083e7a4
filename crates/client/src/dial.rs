//! Opening a connection to a server, as every kind of client does.

use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::time;
use wire::handshake::{self, Credentials, Introduction, Terms};
use wire::transport::{Address, Stream, tls};

/// Connects to a server and introduces the client to it.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if nothing listens there or the time is over; as [`handshake::introduce`].
pub(crate) async fn dial(
    address: &Address,
    tls: Option<&tls::Client>,
    introduction: &Introduction,
    timeout: Duration,
) -> Result<(Stream, Terms)> {
    let opening = async {
        let mut stream = Stream::dial(address, tls).await?;
        let terms = handshake::introduce(&mut stream, introduction).await?;
        Ok((stream, terms))
    };
    time::timeout(timeout, opening).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("{address} does not answer within {timeout:?}")))
    })
}

/// The credentials of a client. A URL may name the user, but has no password.
pub(crate) fn credentials(given: Option<&Credentials>, user: Option<&str>) -> Option<Credentials> {
    match (given, user) {
        (Some(given), Some(user)) if given.user.is_empty() => {
            Some(Credentials { user: user.to_owned(), password: given.password.clone() })
        }
        (Some(given), _) => Some(given.clone()),
        (None, user) => user.map(|user| Credentials { user: user.to_owned(), password: String::new() }),
    }
}
