//! Error messages for failures between two sides of TLS.

use std::io;

use model::{Error, ErrorKind};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

/// Where an error occurred.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ErrorContext<'a> {
    /// With the server that this side dialled.
    Dialled(&'a str),
    /// The same with a server of HTTPS.
    DialledHttps {
        /// Its address.
        host: &'a str,
        /// Whether this side has a certificate.
        has_certificate: bool,
    },
    /// With a client.
    Accepted,
}

impl ErrorContext<'_> {
    /// The error for the caller; if TLS is not involved, that the connection broke.
    pub(crate) fn explain(self, error: io::Error) -> Error {
        let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (kind, what) = match (found.and_then(|found| self.describe(found)), self) {
            (Some((kind, what)), _) => (kind, what),
            (None, Self::Dialled(host) | Self::DialledHttps { host, .. }) => {
                (ErrorKind::Unavailable, unreachable(host, &error))
            }
            (None, Self::Accepted) => (ErrorKind::Unavailable, "the client closed the connection".to_owned()),
        };
        Error::new(kind, what).with_source(error)
    }

    /// The error for a failure of TLS; `None` for any other failure.
    pub(crate) fn explain_tls(self, error: &io::Error) -> Option<Error> {
        let found = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let (kind, what) = self.describe(found)?;
        Some(Error::new(kind, format!("{what}: {found}")))
    }

    fn describe(self, error: &rustls::Error) -> Option<(ErrorKind, String)> {
        let certificate = match self {
            Self::Dialled(host) | Self::DialledHttps { host, .. } => format!("the certificate of {host}"),
            Self::Accepted => "the client's certificate".to_owned(),
        };
        let denied = |what: String| Some((ErrorKind::Denied, what));
        let unsupported = |what: String| Some((ErrorKind::Unsupported, what));
        match error {
            rustls::Error::InvalidCertificate(why) => denied(format!("{certificate} {}", certificate_problem(why))),
            rustls::Error::NoCertificatesPresented => {
                denied("the client has no certificate, which this server requires".to_owned())
            }
            rustls::Error::InvalidMessage(_) => unsupported(match self {
                Self::Dialled(host) => format!("{host} does not speak TLS: connect to it as mortar://"),
                Self::DialledHttps { host, .. } => format!("{host} does not speak TLS: give its address as http://"),
                Self::Accepted => "the client does not speak TLS".to_owned(),
            }),
            rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) | rustls::Error::PeerIncompatible(_) => {
                unsupported(match self {
                    Self::Dialled(host) | Self::DialledHttps { host, .. } => format!("{host} does not speak TLS 1.3"),
                    Self::Accepted => "the client does not speak TLS 1.3".to_owned(),
                })
            }
            rustls::Error::AlertReceived(alert) => denied(self.describe_alert(*alert)?),
            _ => None,
        }
    }

    fn describe_alert(self, alert: AlertDescription) -> Option<String> {
        let fault = match alert {
            AlertDescription::CertificateRequired => "requires one",
            AlertDescription::UnknownCA => "does not know its authority",
            AlertDescription::CertificateExpired => "reports that it has expired",
            AlertDescription::CertificateRevoked => "reports that it was revoked",
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError => "does not accept it",
            _ => return None,
        };
        Some(match (self, alert) {
            // Programs in Go send another alert for a certificate that is missing.
            (Self::Dialled(host), AlertDescription::CertificateRequired)
            | (Self::DialledHttps { host, .. }, AlertDescription::CertificateRequired)
            | (Self::DialledHttps { host, has_certificate: false }, AlertDescription::BadCertificate) => {
                format!("{host} requires a client certificate: give one, and its key")
            }
            (Self::Dialled(host) | Self::DialledHttps { host, .. }, _) => {
                format!("{host} received this client's certificate and {fault}")
            }
            (Self::Accepted, _) => format!("the client received this server's certificate and {fault}"),
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
            "is not valid yet: check the clocks".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented.iter().map(|name| bare_name(name)).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!("is for {names}: connect by one of these names, or configure the expected name")
        }
        CertificateError::NotValidForName => {
            "is for another name: connect by that name, or configure the expected name".to_owned()
        }
        // A bad signature comes from another authority with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "comes from an authority that is not trusted: give the file with the certificate of its authority"
                .to_owned()
        }
        CertificateError::Revoked => "was revoked".to_owned(),
        _ => "is not valid".to_owned(),
    }
}

/// `DnsName("example")` and `IpAddress(127.0.0.1)` without their wrapping.
fn bare_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').to_owned()
}
