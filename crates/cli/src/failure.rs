//! Failures of commands: their messages and exit codes.
//!
//! The codes are part of the interface: `docs/operations.md` lists them and scripts may rely on them.

use std::fmt;
use std::io;

use model::{Error, ErrorKind};
use serde::Serialize;

/// The exit codes of `mortar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Something failed that no other code names.
    Failure = 1,
    /// The command line, or the request, is wrong.
    Usage = 2,
    /// The named object does not exist.
    NotFound = 3,
    /// An expectation does not hold; nothing was changed.
    Conflict = 4,
    /// The server is unreachable or shutting down, or the space is stopped.
    Unavailable = 5,
    /// Stored data is damaged.
    Corrupt = 6,
    /// No free space, or over a limit.
    Full = 7,
    /// The outcome of a commit is unknown.
    Unknown = 8,
    /// Not allowed.
    Denied = 9,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

/// Why a command failed, for people and programs.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    exit: Exit,
    kind: &'static str,
    message: String,
    hint: Option<String>,
}

/// The result of a command.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// The form of a failure with `--json`, on the error stream.
#[derive(Serialize)]
struct JsonFailure<'a> {
    error: JsonFailureDetail<'a>,
}

#[derive(Serialize)]
struct JsonFailureDetail<'a> {
    kind: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
}

impl Failure {
    /// A failure without a special kind.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failure, kind: "failure", message: message.into(), hint: None }
    }

    /// A wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, kind: "usage", message: message.into(), hint: None }
    }

    /// A named object that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { exit: Exit::NotFound, kind: "not_found", message: message.into(), hint: None }
    }

    /// An expectation that does not hold.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self { exit: Exit::Conflict, kind: "conflict", message: message.into(), hint: None }
    }

    /// A failure with its own exit code.
    pub(crate) fn with(exit: Exit, kind: &'static str, message: impl Into<String>) -> Self {
        Self { exit, kind, message: message.into(), hint: None }
    }

    /// Damaged data.
    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self { exit: Exit::Corrupt, kind: "corrupt", message: message.into(), hint: None }
            .hint("What can be done about each kind of damage is under \"Mend\" in docs/operations.md; what is lost, only a backup has.")
    }

    /// A stop by Ctrl-C.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { exit: Exit::Interrupted, kind: "interrupted", message: message.into(), hint: None }
    }

    /// An error of the operating system about a file.
    pub(crate) fn file(what: impl fmt::Display, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Denied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::Full,
            _ => Exit::Failure,
        };
        Self { exit, kind: "io", message: format!("{what}: {error}"), hint: None }
    }

    /// Adds a hint about what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts the subject of the failure before the message.
    #[must_use]
    pub(crate) fn context(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The message without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether the only problem is that the reader of the output has closed it.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.kind == BROKEN_PIPE
    }

    /// The failure as one JSON object.
    pub(crate) fn to_json(&self) -> String {
        let report = JsonFailure {
            error: JsonFailureDetail {
                kind: self.kind,
                message: &self.message,
                hint: self.hint.as_deref(),
                exit_code: self.exit as u8,
            },
        };
        serde_json::to_string(&report).unwrap_or_else(|_| r#"{"error":{"kind":"internal"}}"#.to_owned())
    }
}

const BROKEN_PIPE: &str = "broken_pipe";

/// `error: …`, with the hint on a second line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, hint) = match error.kind() {
            ErrorKind::Invalid => (Exit::Usage, None),
            ErrorKind::NotFound => (Exit::NotFound, None),
            // The message says what to do.
            ErrorKind::TooLarge | ErrorKind::QuotaExceeded => (Exit::Full, None),
            ErrorKind::Full => (Exit::Full, Some("Make room there, then try again; nothing was changed.")),
            ErrorKind::Denied => (Exit::Denied, None),
            ErrorKind::Corrupt => (
                Exit::Corrupt,
                Some(
                    "`mortar scrub`, at the server that keeps it, lists all damage. `mortar put` or `mortar rm` replaces or removes an object \
                     whose content is damaged. Damaged rows of the B-tree are neither replaced nor removed while the server runs: stop it, and \
                     `mortar repair --data DIR` says what is lost.",
                ),
            ),
            // The message says what to do.
            ErrorKind::Unavailable | ErrorKind::Stopped => (Exit::Unavailable, None),
            ErrorKind::Unknown => (Exit::Unknown, Some("It may have happened: look before you repeat it.")),
            ErrorKind::Exists | ErrorKind::Conflict => (Exit::Conflict, None),
            _ => (Exit::Failure, None),
        };
        Self { exit, kind: error.kind().name(), message: with_causes(&error), hint: hint.map(str::to_owned) }
    }
}

impl Failure {
    /// The failure of a command that works on local files: it needs no hint about a server. As with [`Failure::file`], what the file system does
    /// not permit is denied.
    pub(crate) fn local(error: Error) -> Self {
        let is_denied = error.kind() == ErrorKind::Io && is_of_permissions(&error);
        let failure = Self { hint: None, ..Self::from(error) };
        if is_denied { Self { exit: Exit::Denied, ..failure } } else { failure }
    }
}

/// Errors of output: commands that write files report these with the file's name, so this is the standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Failure, kind: BROKEN_PIPE, message: String::new(), hint: None };
        }
        Self::file("cannot write the output", &error)
    }
}

/// Whether the file system did not permit something, according to the causes of an error.
fn is_of_permissions(error: &dyn std::error::Error) -> bool {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let file_error: Option<&io::Error> = inner.downcast_ref();
        if file_error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// The message of an error and of its causes, unless it contains these already.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_documented_exit_code() {
        let cases = [
            (ErrorKind::Invalid, 2),
            (ErrorKind::NotFound, 3),
            (ErrorKind::TooLarge, 7),
            (ErrorKind::Denied, 9),
            (ErrorKind::Full, 7),
            (ErrorKind::Corrupt, 6),
            (ErrorKind::Unavailable, 5),
            (ErrorKind::Unknown, 8),
            (ErrorKind::Unsupported, 1),
            (ErrorKind::Io, 1),
            (ErrorKind::Internal, 1),
            (ErrorKind::Stopped, 5),
            (ErrorKind::Exists, 4),
            (ErrorKind::Conflict, 4),
            (ErrorKind::QuotaExceeded, 7),
        ];
        for (kind, code) in cases {
            assert_eq!(Failure::from(Error::new(kind, "x")).exit() as u8, code, "{}", kind.name());
        }
    }

    #[test]
    fn a_failure_is_one_json_object() {
        let failure = Failure::not_found("no object \"x\"").hint("look elsewhere");
        let json: serde_json::Value = serde_json::from_str(&failure.to_json()).unwrap();
        assert_eq!(json["error"]["kind"], "not_found");
        assert_eq!(json["error"]["message"], "no object \"x\"");
        assert_eq!(json["error"]["hint"], "look elsewhere");
        assert_eq!(json["error"]["exit_code"], 3);
    }

    #[test]
    fn what_the_file_system_does_not_permit_is_denied_for_local_files() {
        let error = |kind: io::ErrorKind| Error::new(ErrorKind::Io, "creating x").with_source(io::Error::from(kind));
        assert_eq!(Failure::local(error(io::ErrorKind::PermissionDenied)).exit(), Exit::Denied);
        assert_eq!(Failure::local(error(io::ErrorKind::NotFound)).exit(), Exit::Failure);
        assert_eq!(Failure::from(error(io::ErrorKind::PermissionDenied)).exit(), Exit::Failure);
    }

    #[test]
    fn causes_are_reported_once() {
        let inner = io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Io, "cannot read").with_source(inner);
        assert_eq!(Failure::from(error).message, "cannot read: disk on fire");
        let inner = io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Io, "cannot read: disk on fire").with_source(inner);
        assert_eq!(Failure::from(error).message, "cannot read: disk on fire");
    }
}
