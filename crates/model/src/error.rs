//! The error of every public call of Mortar, on both sides of the wire.

use std::error::Error as StdError;
use std::fmt;

use crate::Oid;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid: correct it. Nothing was changed.
    Invalid = 1,
    /// Something that the request names does not exist. Nothing was changed.
    NotFound = 2,
    /// Something is larger than a limit: split it, or stream it. Nothing was changed.
    TooLarge = 3,
    /// The caller has no permission: log in, or ask for permission.
    Denied = 4,
    /// The store has no room, in memory or on disk: make room and try again. Nothing was changed.
    Full = 5,
    /// Stored data is damaged. The message names what is lost and what can be done.
    Corrupt = 6,
    /// The server is unavailable: try again. Nothing was changed.
    Unavailable = 7,
    /// The connection broke after a commit was sent, so its outcome is unknown: read to find out.
    Unknown = 8,
    /// The other side speaks another version, or lacks a feature: upgrade one of the two.
    Unsupported = 9,
    /// The operating system or a device failed, as the message says.
    Io = 10,
    /// A bug in Mortar: please report it.
    Internal = 11,
    /// The transaction conflicts with another one: begin it again. Nothing was changed.
    Conflict = 12,
    /// The space is stopped by its failure policy while a brick is unreachable: wait until it continues. Nothing was
    /// changed.
    Stopped = 13,
    /// An object, name or unique value exists already: use the existing one, or choose another. Nothing was changed.
    Exists = 14,
    /// The space would take more than its quota: delete something, or have the quota raised. Nothing was changed.
    QuotaExceeded = 15,
}

impl ErrorKind {
    /// The kind with this code. An unknown code, from a newer server, is [`ErrorKind::Internal`].
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Invalid,
            2 => Self::NotFound,
            3 => Self::TooLarge,
            4 => Self::Denied,
            5 => Self::Full,
            6 => Self::Corrupt,
            7 => Self::Unavailable,
            8 => Self::Unknown,
            9 => Self::Unsupported,
            10 => Self::Io,
            12 => Self::Conflict,
            13 => Self::Stopped,
            14 => Self::Exists,
            15 => Self::QuotaExceeded,
            _ => Self::Internal,
        }
    }

    /// The kind's name, as in `--json` output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Denied => "denied",
            Self::Full => "full",
            Self::Corrupt => "corrupt",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Unsupported => "unsupported",
            Self::Io => "io",
            Self::Internal => "internal",
            Self::Conflict => "conflict",
            Self::Stopped => "stopped",
            Self::Exists => "exists",
            Self::QuotaExceeded => "quota_exceeded",
        }
    }
}

/// An error: a kind, a message that says what was wrong, where, and what to do, and perhaps a cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    object: Option<Oid>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of a public call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error. `message` says what was wrong, where, and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), object: None, source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error with the object that it is about.
    #[must_use]
    pub fn about(mut self, object: Oid) -> Self {
        self.object = Some(object);
        self
    }

    /// The object that the error is about, if it is known: in a conflict, the one that another transaction has changed or uses.
    #[must_use]
    pub fn object(&self) -> Option<Oid> {
        self.object
    }

    /// The message with those of the causes, but for what it says already.
    #[must_use]
    pub fn message_with_causes(&self) -> String {
        let mut message = self.message.clone();
        let mut source = self.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        message
    }

    /// What the caller should do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message without the causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
