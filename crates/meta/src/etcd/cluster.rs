//! etcd's members as one: whoever answers, until somebody does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderValue;
use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{self, Instant};

use super::api::{Authenticate, Token};
use super::http::{Failure, Lines, Member};
use super::{EtcdConfig, MOST_ENDPOINTS};

/// gRPC's codes.
pub(super) mod code {
    pub(in crate::etcd) const INVALID_ARGUMENT: i32 = 3;
    pub(in crate::etcd) const NOT_FOUND: i32 = 5;
    pub(in crate::etcd) const PERMISSION_DENIED: i32 = 7;
    pub(in crate::etcd) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(in crate::etcd) const FAILED_PRECONDITION: i32 = 9;
    pub(in crate::etcd) const OUT_OF_RANGE: i32 = 11;
    pub(in crate::etcd) const UNIMPLEMENTED: i32 = 12;
    pub(in crate::etcd) const UNAUTHENTICATED: i32 = 16;
}

/// etcd's members.
pub(super) struct Cluster {
    members: Vec<Member>,
    /// Who is asked first: the last one that answered.
    pub(super) current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<HeaderValue>>,
    attempt: Duration,
    patience: Duration,
}

impl Cluster {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self> {
        if config.endpoints.is_empty() || config.endpoints.len() > MOST_ENDPOINTS {
            let message = format!("etcd has 1 to {MOST_ENDPOINTS} addresses, not {}", config.endpoints.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let members = config.endpoints.iter().map(|url| Member::new(url)).collect::<Result<_>>()?;
        let (current, token, user) = (AtomicUsize::new(0), Mutex::default(), config.user.clone());
        Ok(Self { members, current, user, token, attempt: config.attempt, patience: config.patience })
    }

    /// By when an operation that begins now has to be done.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Asks, again and again, until somebody answers or it is too late: for what may happen twice.
    pub(super) async fn ask<T: DeserializeOwned>(&self, path: &str, request: &impl Serialize) -> Result<T, Failure> {
        let (body, mut pause) = (body(request)?, Pause::new(self.deadline()));
        loop {
            match self.attempt(path, body.clone()).await {
                Err(failure) if is_passing(&failure) => {
                    if !pause.wait(self.members.len()).await {
                        return Err(failure);
                    }
                }
                answered => return answered,
            }
        }
    }

    /// Asks one member once.
    pub(super) async fn attempt<T: DeserializeOwned>(&self, path: &str, body: Bytes) -> Result<T, Failure> {
        let at = self.current.load(Ordering::Relaxed);
        let member = &self.members[at % self.members.len()];
        let answer =
            self.with_token(member, |token| member_call(member, path, body.clone(), token, self.attempt)).await;
        let parsed = answer.and_then(|answer| {
            serde_json::from_slice(&answer)
                .map_err(|error| Failure::Lost(format!("{} answers nonsense: {error}", member.authority())))
        });
        self.judge(at, parsed)
    }

    /// Opens a stream at one member.
    pub(super) async fn stream(&self, path: &str, body: Bytes) -> Result<(Lines, usize), Failure> {
        let at = self.current.load(Ordering::Relaxed);
        let member = &self.members[at % self.members.len()];
        let opened =
            self.with_token(member, |token| member_stream(member, path, body.clone(), token, self.attempt)).await;
        self.judge(at, opened).map(|lines| (lines, at))
    }

    /// How many members there are.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Asks another member next, as this one is no good now.
    pub(super) fn leave(&self, at: usize) {
        let _ = self.current.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Logs in again before the next request: the token has run out.
    pub(super) fn forget_token(&self) {
        *self.token.lock() = None;
    }

    fn judge<T>(&self, at: usize, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &result
            && is_passing(failure)
        {
            self.leave(at);
        }
        result
    }

    /// Does something with the token that was got for the user; gets another if that has run out.
    async fn with_token<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        member: &Member,
        call: impl Fn(Option<HeaderValue>) -> F,
    ) -> Result<T, Failure> {
        let Some((name, password)) = &self.user else { return call(None).await };
        let known = self.token.lock().clone();
        if let Some(token) = known {
            match call(Some(token)).await {
                Err(Failure::Refused { code: code::UNAUTHENTICATED, .. }) => {}
                answered => return answered,
            }
        }
        let login = body(&Authenticate { name, password })?;
        let answer = member.call("/v3/auth/authenticate", login, None, self.attempt).await;
        // Nothing was asked yet: whatever happens here, the request had no effect.
        let answer = answer.map_err(|failure| match failure {
            Failure::Lost(message) => Failure::NotSent(message),
            other => other,
        })?;
        let nonsense = || Failure::NotSent(format!("{} gives no token", member.authority()));
        let token: Token = serde_json::from_slice(&answer).map_err(|_| nonsense())?;
        let mut token = HeaderValue::from_str(&token.token).map_err(|_| nonsense())?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token.clone());
        call(Some(token)).await
    }
}

async fn member_call(
    member: &Member,
    path: &str,
    body: Bytes,
    token: Option<HeaderValue>,
    within: Duration,
) -> Result<Bytes, Failure> {
    member.call(path, body, token.as_ref(), within).await
}

async fn member_stream(
    member: &Member,
    path: &str,
    body: Bytes,
    token: Option<HeaderValue>,
    within: Duration,
) -> Result<Lines, Failure> {
    member.stream(path, body, token.as_ref(), within).await
}

/// A request's bytes.
pub(super) fn body(request: &impl Serialize) -> Result<Bytes, Failure> {
    serde_json::to_vec(request).map(Bytes::from).map_err(|error| Failure::NotSent(error.to_string()))
}

/// Whether asking again, or somebody else, may help.
pub(super) fn is_passing(failure: &Failure) -> bool {
    match failure {
        Failure::NotSent(_) | Failure::Lost(_) => true,
        Failure::Refused { code: code::RESOURCE_EXHAUSTED, message } => message.contains("too many requests"),
        Failure::Refused { code, .. } => !matches!(
            *code,
            code::INVALID_ARGUMENT
                | code::NOT_FOUND
                | code::PERMISSION_DENIED
                | code::FAILED_PRECONDITION
                | code::OUT_OF_RANGE
                | code::UNIMPLEMENTED
                | code::UNAUTHENTICATED
        ),
        Failure::TooLong => false,
    }
}

/// The error for somebody who asked.
pub(super) fn error(failure: Failure) -> Error {
    let (kind, message) = match failure {
        Failure::NotSent(message) | Failure::Lost(message) => (
            ErrorKind::Unavailable,
            format!("no member of etcd could be asked ({message}): look whether most of them run"),
        ),
        Failure::TooLong => (ErrorKind::TooLarge, "an answer of etcd is too long: ask for less".to_owned()),
        Failure::Refused { code, message } => {
            let no_user = message.contains("user name is empty");
            match code {
                code::PERMISSION_DENIED | code::UNAUTHENTICATED => (ErrorKind::Denied, message),
                code::INVALID_ARGUMENT if no_user || message.contains("authentication failed") => {
                    (ErrorKind::Denied, message)
                }
                code::NOT_FOUND => (ErrorKind::NotFound, message),
                code::RESOURCE_EXHAUSTED => (ErrorKind::Full, message),
                code::INVALID_ARGUMENT if message.contains("too large") => {
                    (ErrorKind::TooLarge, format!("{message}: give etcd a larger --max-request-bytes"))
                }
                code::FAILED_PRECONDITION | code::UNIMPLEMENTED => (ErrorKind::Unsupported, message),
                code::INVALID_ARGUMENT => (ErrorKind::Internal, message),
                _ => (ErrorKind::Unavailable, message),
            }
        }
    };
    Error::new(kind, format!("etcd: {message}"))
}

/// Waits between attempts: not at all before the next member is asked, longer each time that all have failed.
pub(super) struct Pause {
    deadline: Instant,
    attempts: usize,
}

impl Pause {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline, attempts: 0 }
    }

    /// Waits for the next attempt; false if it is too late for that.
    pub(super) async fn wait(&mut self, members: usize) -> bool {
        const LONGEST_MS: u64 = 1_000;
        self.attempts += 1;
        let rounds = self.attempts / members.max(1);
        if self.attempts.is_multiple_of(members.max(1)) {
            let ms = (25_u64 << rounds.min(10)).min(LONGEST_MS);
            time::sleep(Duration::from_millis(ms)).await;
        }
        Instant::now() < self.deadline
    }
}
