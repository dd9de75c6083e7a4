//! HTTP/1.1 to one member of etcd: requests with a single answer, and requests with a stream of answers.
//!
//! Answers are bounded in size and time. Errors tell whether the request may have taken effect.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time;
use wire::tasks;
use wire::transport::tls;

use super::api::Refusal;

/// Most bytes of an answer, and of a message of a stream.
pub(super) const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Idle connections that are kept.
const MAX_IDLE_CONNECTIONS: usize = 4;
/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a request failed.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// It was not sent, so it had no effect.
    NotSent(String),
    /// It was not sent, because the member does not fit the settings: TLS, a certificate, or another protocol. Repeating it at this member
    /// does not help, at another one it may.
    Mismatch(Error),
    /// Its answer was lost, so its effect is unknown.
    Lost(String),
    /// It was answered with an error of gRPC.
    Refused {
        /// The error code.
        code: i32,
        /// The error message.
        message: String,
    },
    /// Its answer has more than [`MAX_ANSWER_BYTES`] bytes.
    TooLong,
}

/// A member of etcd.
#[derive(Debug)]
pub(super) struct EtcdMember {
    /// `host:port`.
    authority: String,
    /// How it is verified; `None` without TLS.
    tls: Option<tls::Client>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl EtcdMember {
    /// The member at an address such as `http://127.0.0.1:2379`, or `https://` with this TLS.
    pub(super) fn new(url: &str, tls: Option<&tls::Client>) -> Result<Self> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("etcd's address {url:?}: {why}")));
        let form = "it must have the form http://HOST:PORT or https://HOST:PORT";
        let Some((scheme, authority)) = url.split_once("://") else { return refuse(form) };
        let tls = match (scheme, tls) {
            ("http", _) => None,
            ("https", Some(tls)) => Some(tls.clone()),
            ("https", None) => return refuse("https needs the authorities of its members' certificates: give etcd_ca"),
            _ => return refuse(form),
        };
        let authority = authority.trim_end_matches('/');
        let port = authority
            .rsplit_once(':')
            .filter(|(host, _)| !host.is_empty())
            .and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || authority.contains('/') || HeaderValue::from_str(authority).is_err() {
            return refuse(form);
        }
        Ok(Self { authority: authority.to_owned(), tls, idle: Mutex::default() })
    }

    /// The member's address.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Sends a request and returns its whole answer.
    pub(super) async fn call(
        &self,
        path: &str,
        body: Bytes,
        token: Option<&HeaderValue>,
        within: Duration,
    ) -> Result<Bytes, RequestFailure> {
        let began = time::Instant::now();
        let (sender, response) = self.send(path, body, token, within).await?;
        let ok = response.status().is_success();
        let collected = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
        let collected = time::timeout(within.saturating_sub(began.elapsed()), collected).await;
        let bytes = match collected {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(RequestFailure::TooLong),
            Ok(Err(error)) => return Err(RequestFailure::Lost(format!("{}: {error}", self.authority))),
            Err(_) => return Err(self.timeout_failure()),
        };
        self.keep_idle(sender);
        if ok { Ok(bytes) } else { Err(self.refusal(&bytes)) }
    }

    /// Sends a request and returns its answer as lines. The time limit is for the first line.
    pub(super) async fn stream(
        &self,
        path: &str,
        body: Bytes,
        token: Option<&HeaderValue>,
        within: Duration,
    ) -> Result<Lines, RequestFailure> {
        let (sender, response) = self.send(path, body, token, within).await?;
        if response.status().is_success() {
            return Ok(Lines { body: response.into_body(), buffer: BytesMut::new(), searched: 0, _sender: sender });
        }
        let collected = time::timeout(within, Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect()).await;
        match collected {
            Ok(Ok(collected)) => Err(self.refusal(&collected.to_bytes())),
            _ => Err(self.timeout_failure()),
        }
    }

    async fn send(
        &self,
        path: &str,
        body: Bytes,
        token: Option<&HeaderValue>,
        within: Duration,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), RequestFailure> {
        let mut request = Request::post(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            // Makes a member without a leader answer with an error instead of waiting for one.
            .header("Grpc-Metadata-hasleader", "true");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body)).map_err(|error| RequestFailure::NotSent(error.to_string()))?;
        let (mut sender, is_new) = self.connection().await?;
        match time::timeout(within, sender.try_send_request(request)).await {
            Ok(Ok(response)) => Ok((sender, response)),
            // The error contains the request if nothing of it was sent.
            Ok(Err(mut error)) => {
                let was_sent = error.take_message().is_none();
                let error_of_tls = |client| tls::https_refusal(&self.authority, client, error.error());
                if let Some(refusal) = self.tls.as_ref().and_then(error_of_tls) {
                    return Err(RequestFailure::Mismatch(refusal));
                }
                // What a member does that speaks TLS.
                let is_empty = is_new && self.tls.is_none() && error.error().is_incomplete_message();
                let hint = if is_empty { "; if it speaks TLS, give its address as https://" } else { "" };
                let message = format!("{}: {}{hint}", self.authority, error.error());
                Err(if was_sent { RequestFailure::Lost(message) } else { RequestFailure::NotSent(message) })
            }
            Err(_) => Err(self.timeout_failure()),
        }
    }

    /// An idle connection, or a new one, and whether it is new.
    async fn connection(&self) -> Result<(SendRequest<Full<Bytes>>, bool), RequestFailure> {
        while let Some(mut sender) = { self.idle.lock().pop() } {
            if sender.ready().await.is_ok() {
                return Ok((sender, false));
            }
        }
        let failed = |error: String| RequestFailure::NotSent(format!("{}: {error}", self.authority));
        let connecting = time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.authority)).await;
        let stream = match connecting {
            Ok(stream) => stream.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("no connection within {CONNECT_TIMEOUT:?}"))),
        };
        // Each request is one small write, which must not wait for more data.
        let _ = stream.set_nodelay(true);
        let Some(client) = &self.tls else { return self.start_http(TokioIo::new(stream)).await };
        let secured = time::timeout(CONNECT_TIMEOUT, tls::connect_https(&self.authority, stream, client)).await;
        match secured {
            Ok(Ok(stream)) => self.start_http(TokioIo::new(stream)).await,
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => {
                // What a member does that does not speak TLS.
                Err(failed(format!("{error}; if it does not speak TLS, give its address as http://")))
            }
            Ok(Err(error)) => Err(RequestFailure::Mismatch(error)),
            Err(_) => Err(failed(format!("no TLS within {CONNECT_TIMEOUT:?}"))),
        }
    }

    async fn start_http(
        &self,
        stream: impl Read + Write + Unpin + Send + 'static,
    ) -> Result<(SendRequest<Full<Bytes>>, bool), RequestFailure> {
        let failed = |error: hyper::Error| RequestFailure::NotSent(format!("{}: {error}", self.authority));
        let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
        // Ends when the sender is dropped or the server closes it; pending requests then fail.
        tasks::spawn(async move { drop(connection.await) });
        Ok((sender, true))
    }

    fn keep_idle(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(sender);
        }
    }

    fn timeout_failure(&self) -> RequestFailure {
        RequestFailure::Lost(format!("{} has not answered in time", self.authority))
    }

    fn refusal(&self, body: &[u8]) -> RequestFailure {
        match serde_json::from_slice::<Refusal>(body) {
            Ok(Refusal { code: Some(code), message, error }) => {
                RequestFailure::Refused { code, message: if message.is_empty() { error } else { message } }
            }
            _ => {
                let shown: String = String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
                if shown.contains("CommonName of client") {
                    let what = "etcd refuses a client certificate that has a common name while etcd has users: give etcd_cert without one";
                    return RequestFailure::Mismatch(Error::new(
                        ErrorKind::Denied,
                        format!("{}: {what}", self.authority),
                    ));
                }
                RequestFailure::Lost(format!("{} does not answer like etcd 3.4 or later: {shown:?}", self.authority))
            }
        }
    }
}

/// An answer that arrives line by line.
pub(super) struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// Number of buffered bytes that contain no end of a line.
    searched: usize,
    _sender: SendRequest<Full<Bytes>>,
}

impl Lines {
    /// The next line; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, RequestFailure> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + at + 1).freeze();
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_ANSWER_BYTES {
                return Err(RequestFailure::TooLong);
            }
            match self.body.frame().await {
                // A last line without its end was cut off.
                None => return Ok(None),
                Some(Err(error)) => return Err(RequestFailure::Lost(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_without_connecting() {
        let new = |url: &str| EtcdMember::new(url, None);
        assert_eq!(new("http://127.0.0.1:2379/").unwrap().authority(), "127.0.0.1:2379");
        assert_eq!(new("http://[::1]:2379").unwrap().authority(), "[::1]:2379");
        for url in [
            "127.0.0.1:2379",
            "http://",
            "http://a",
            "http://:1",
            "http://a:x",
            "http://a:1/b",
            "http://a\n:1",
            "ftp://a:1",
            "https://a:1",
        ] {
            assert_eq!(new(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
        assert!(new("https://a:1").unwrap_err().message().contains("etcd_ca"));
    }
}
