//! What goes wrong between two sides of TLS, in words that say what to do.

use std::io;

use model::{Error, ErrorKind};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

/// Where it goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ErrorContext<'a> {
    /// With the server that this side dialled.
    Dialled(&'a str),
    /// With a client.
    Accepted,
}

impl ErrorContext<'_> {
    /// What an error of the stream means; if TLS has nothing to do with it, that the connection broke.
    pub(crate) fn explain(self, error: io::Error) -> Error {
        let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (kind, what) = match (found.and_then(|found| self.describe(found)), self) {
            (Some((kind, what)), _) => (kind, what),
            (None, Self::Dialled(host)) => (ErrorKind::Unavailable, unreachable(host, &error)),
            (None, Self::Accepted) => (ErrorKind::Unavailable, "the client hung up".to_owned()),
        };
        Error::new(kind, what).caused_by(error)
    }

    /// What TLS itself says, if it is worth other words.
    pub(crate) fn explain_tls(self, error: &io::Error) -> Option<Error> {
        let found = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let (kind, what) = self.describe(found)?;
        Some(Error::new(kind, format!("{what}: {found}")))
    }

    fn describe(self, error: &rustls::Error) -> Option<(ErrorKind, String)> {
        let whose = match self {
            Self::Dialled(host) => format!("the certificate of {host}"),
            Self::Accepted => "the client's certificate".to_owned(),
        };
        let denied = |what: String| Some((ErrorKind::Denied, what));
        let unsupported = |what: String| Some((ErrorKind::Unsupported, what));
        match error {
            rustls::Error::InvalidCertificate(why) => denied(format!("{whose} {}", certificate_problem(why))),
            rustls::Error::NoCertificatesPresented => {
                denied("the client has no certificate, which this server asks for".to_owned())
            }
            rustls::Error::InvalidMessage(_) => unsupported(match self {
                Self::Dialled(host) => format!("{host} does not speak TLS: connect to it as mortar://"),
                Self::Accepted => "the client does not speak TLS".to_owned(),
            }),
            rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) | rustls::Error::PeerIncompatible(_) => {
                unsupported(match self {
                    Self::Dialled(host) => format!("{host} does not speak TLS 1.3"),
                    Self::Accepted => "the client does not speak TLS 1.3".to_owned(),
                })
            }
            rustls::Error::AlertReceived(alert) => denied(self.describe_alert(*alert)?),
            _ => None,
        }
    }

    fn describe_alert(self, alert: AlertDescription) -> Option<String> {
        let fault = match alert {
            AlertDescription::CertificateRequired => "asks for one",
            AlertDescription::UnknownCA => "does not know its authority",
            AlertDescription::CertificateExpired => "says that it has expired",
            AlertDescription::CertificateRevoked => "says that it was revoked",
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError => "does not believe it",
            _ => return None,
        };
        Some(match (self, alert) {
            (Self::Dialled(host), AlertDescription::CertificateRequired) => {
                format!("{host} asks for a client certificate: name one, and its key")
            }
            (Self::Dialled(host), _) => format!("{host} was shown this client's certificate, and {fault}"),
            (Self::Accepted, _) => format!("the client was shown this server's certificate, and {fault}"),
        })
    }
}

fn unreachable(host: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => format!("no server listens at {host}"),
        _ => format!("cannot connect to {host}"),
    }
}

/// What is wrong with a certificate, and what to do about it.
fn certificate_problem(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired: renew it".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: look at the clocks".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented.iter().map(|name| bare_dns_name(name)).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!("is for {names}: dial it by such a name, or say which name to expect")
        }
        CertificateError::NotValidForName => {
            "is for another name: dial it by its name, or say which to expect".to_owned()
        }
        // Of another authority with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is of an authority that is not trusted here: name the file with the certificate of its authority"
                .to_owned()
        }
        CertificateError::Revoked => "was revoked".to_owned(),
        _ => "is not believed".to_owned(),
    }
}

/// `DnsName("example")` without its wrapping.
fn bare_dns_name(name: &str) -> String {
    name.split('"').nth(1).map_or_else(|| name.to_owned(), str::to_owned)
}
