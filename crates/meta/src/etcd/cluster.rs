//! The members of an etcd cluster: sends a request to one member after the other until one answers.

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
use super::http::{EtcdMember, Lines, RequestFailure};
use super::login::EtcdUser;
use super::{EtcdConfig, MAX_ENDPOINTS};

/// Error codes of gRPC.
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

/// The members of an etcd.
pub(super) struct EtcdCluster {
    members: Vec<EtcdMember>,
    /// Index of the member to ask first: the last one that answered.
    pub(super) current: AtomicUsize,
    user: Option<EtcdUser>,
    token: Mutex<Option<HeaderValue>>,
    attempt_timeout: Duration,
    operation_timeout: Duration,
}

impl EtcdCluster {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self> {
        if config.endpoints.is_empty() || config.endpoints.len() > MAX_ENDPOINTS {
            let message = format!("etcd has 1 to {MAX_ENDPOINTS} addresses, not {}", config.endpoints.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let tls = config.tls.as_ref();
        let members = config.endpoints.iter().map(|url| EtcdMember::new(url, tls)).collect::<Result<_>>()?;
        // A file that cannot be read is reported first.
        config.user.as_ref().map(EtcdUser::password).transpose()?;
        let (current, token, user) = (AtomicUsize::new(0), Mutex::default(), config.user.clone());
        Ok(Self {
            members,
            current,
            user,
            token,
            attempt_timeout: config.attempt_timeout,
            operation_timeout: config.operation_timeout,
        })
    }

    /// The deadline of an operation that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.operation_timeout
    }

    /// Sends an idempotent request, and repeats it until a member answers or the time limit is reached.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, RequestFailure> {
        let (body, mut pause) = (body(request)?, Backoff::new(self.deadline()));
        loop {
            match self.request_once(path, body.clone()).await {
                Err(failure) if is_transient(&failure) => {
                    if !pause.wait(&failure, self.members.len()).await {
                        return Err(failure);
                    }
                }
                answered => return answered,
            }
        }
    }

    /// Sends a request to one member, once.
    pub(super) async fn request_once<T: DeserializeOwned>(&self, path: &str, body: Bytes) -> Result<T, RequestFailure> {
        let at = self.current.load(Ordering::Relaxed);
        let member = &self.members[at % self.members.len()];
        let answer =
            self.with_token(member, |token| member_call(member, path, body.clone(), token, self.attempt_timeout)).await;
        let parsed = answer.and_then(|answer| {
            serde_json::from_slice(&answer).map_err(|error| {
                RequestFailure::Lost(format!("the answer of {} cannot be decoded: {error}", member.authority()))
            })
        });
        self.switch_on_failure(at, parsed)
    }

    /// Opens a stream at one member.
    pub(super) async fn stream(&self, path: &str, body: Bytes) -> Result<(Lines, usize), RequestFailure> {
        let at = self.current.load(Ordering::Relaxed);
        let member = &self.members[at % self.members.len()];
        let opened = self
            .with_token(member, |token| member_stream(member, path, body.clone(), token, self.attempt_timeout))
            .await;
        self.switch_on_failure(at, opened).map(|lines| (lines, at))
    }

    /// Number of members.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Makes the next request go to another member than `at`.
    pub(super) fn switch_member(&self, at: usize) {
        let _ = self.current.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Logs in again before the next request, because the token has expired.
    pub(super) fn forget_token(&self) {
        *self.token.lock() = None;
    }

    fn switch_on_failure<T>(&self, at: usize, result: Result<T, RequestFailure>) -> Result<T, RequestFailure> {
        if let Err(failure) = &result
            && is_transient(failure)
        {
            self.switch_member(at);
        }
        result
    }

    /// Makes a call with the token of the user, and once more with a new one if it has expired.
    async fn with_token<T, F: Future<Output = Result<T, RequestFailure>>>(
        &self,
        member: &EtcdMember,
        call: impl Fn(Option<HeaderValue>) -> F,
    ) -> Result<T, RequestFailure> {
        let Some(user) = &self.user else { return call(None).await };
        let known = self.token.lock().clone();
        if let Some(token) = known {
            match call(Some(token)).await {
                Err(failure) if is_token_expired(&failure) => {}
                answered => return answered,
            }
        }
        let token = self.log_in(member, user).await?;
        *self.token.lock() = Some(token.clone());
        call(Some(token)).await
    }

    async fn log_in(&self, member: &EtcdMember, user: &EtcdUser) -> Result<HeaderValue, RequestFailure> {
        let password = user.password().map_err(RequestFailure::Mismatch)?;
        let login = body(&Authenticate { name: &user.name, password: &password })?;
        let answer = member.call("/v3/auth/authenticate", login, None, self.attempt_timeout).await;
        // The request itself was not sent yet, so it had no effect.
        let answer = answer.map_err(|failure| match failure {
            RequestFailure::Lost(message) => RequestFailure::NotSent(message),
            other => other,
        })?;
        let no_token =
            || RequestFailure::NotSent(format!("{} has answered a login without a token", member.authority()));
        let token: Token = serde_json::from_slice(&answer).map_err(|_| no_token())?;
        let mut token = HeaderValue::from_str(&token.token).map_err(|_| no_token())?;
        token.set_sensitive(true);
        Ok(token)
    }
}

/// Whether a new token helps: the old one has expired, or users or roles of etcd have changed since.
fn is_token_expired(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::Refused { code: code::UNAUTHENTICATED, .. } => true,
        RequestFailure::Refused { message, .. } => message.contains("revision of auth store is old"),
        _ => false,
    }
}

async fn member_call(
    member: &EtcdMember,
    path: &str,
    body: Bytes,
    token: Option<HeaderValue>,
    within: Duration,
) -> Result<Bytes, RequestFailure> {
    member.call(path, body, token.as_ref(), within).await
}

async fn member_stream(
    member: &EtcdMember,
    path: &str,
    body: Bytes,
    token: Option<HeaderValue>,
    within: Duration,
) -> Result<Lines, RequestFailure> {
    member.stream(path, body, token.as_ref(), within).await
}

/// The body of a request.
pub(super) fn body(request: &impl Serialize) -> Result<Bytes, RequestFailure> {
    serde_json::to_vec(request).map(Bytes::from).map_err(|error| RequestFailure::NotSent(error.to_string()))
}

/// Whether repeating the request, perhaps at another member, may succeed.
pub(super) fn is_transient(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::NotSent(_) | RequestFailure::Lost(_) | RequestFailure::Mismatch(_) => true,
        RequestFailure::Refused { code: code::RESOURCE_EXHAUSTED, message } => message.contains("too many requests"),
        RequestFailure::Refused { code, .. } => !matches!(
            *code,
            code::INVALID_ARGUMENT
                | code::NOT_FOUND
                | code::PERMISSION_DENIED
                | code::FAILED_PRECONDITION
                | code::OUT_OF_RANGE
                | code::UNIMPLEMENTED
                | code::UNAUTHENTICATED
        ),
        RequestFailure::TooLong => false,
    }
}

/// The error for the caller.
pub(super) fn to_error(failure: RequestFailure) -> Error {
    let (kind, message) = match failure {
        RequestFailure::NotSent(message) | RequestFailure::Lost(message) => {
            (ErrorKind::Unavailable, format!("no member of etcd is available ({message}): check that most of them run"))
        }
        RequestFailure::Mismatch(error) => return Error::new(error.kind(), format!("etcd: {error}")),
        RequestFailure::TooLong => {
            (ErrorKind::TooLarge, "an answer of etcd is too large: read less at a time".to_owned())
        }
        RequestFailure::Refused { code, message } => refusal_error(code, message),
    };
    Error::new(kind, format!("etcd: {message}"))
}

fn refusal_error(code: i32, message: String) -> (ErrorKind, String) {
    match code {
        code::PERMISSION_DENIED => {
            let what =
                "the user needs a role with `readwrite` permission for the prefix that is the namespace and a slash";
            (ErrorKind::Denied, format!("{message}: {what}"))
        }
        code::UNAUTHENTICATED => (ErrorKind::Denied, message),
        code::INVALID_ARGUMENT if message.contains("user name is empty") => {
            (ErrorKind::Denied, format!("{message}: give etcd_user and etcd_password_file"))
        }
        code::INVALID_ARGUMENT if message.contains("authentication failed") => (ErrorKind::Denied, message),
        code::NOT_FOUND => (ErrorKind::NotFound, message),
        code::RESOURCE_EXHAUSTED => (ErrorKind::Full, message),
        code::INVALID_ARGUMENT if message.contains("too large") => {
            (ErrorKind::TooLarge, format!("{message}: give etcd a larger --max-request-bytes"))
        }
        code::FAILED_PRECONDITION if message.contains("authentication is not enabled") => {
            (ErrorKind::Unsupported, format!("{message}: enable it, or give no etcd_user"))
        }
        code::FAILED_PRECONDITION | code::UNIMPLEMENTED => (ErrorKind::Unsupported, message),
        code::INVALID_ARGUMENT => (ErrorKind::Internal, message),
        _ => (ErrorKind::Unavailable, message),
    }
}

/// Pauses between attempts: none before the next member is asked, and longer each time when all have failed.
pub(super) struct Backoff {
    deadline: Instant,
    attempts: usize,
    /// Attempts in sequence that no repetition at the same member helps.
    mismatches: usize,
}

impl Backoff {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline, attempts: 0, mismatches: 0 }
    }

    /// Waits for the next attempt after a failure. Returns false if the deadline has passed, or if no member fits the settings.
    pub(super) async fn wait(&mut self, failure: &RequestFailure, members: usize) -> bool {
        const LONGEST_MS: u64 = 1_000;
        self.mismatches = if matches!(failure, RequestFailure::Mismatch(_)) { self.mismatches + 1 } else { 0 };
        if self.mismatches >= members {
            return false;
        }
        self.attempts += 1;
        let rounds = self.attempts / members.max(1);
        if self.attempts.is_multiple_of(members.max(1)) {
            let ms = (25_u64 << rounds.min(10)).min(LONGEST_MS);
            time::sleep(Duration::from_millis(ms)).await;
        }
        Instant::now() < self.deadline
    }
}
