//! What a relay is asked to do, and why it may refuse.

use std::error::Error;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The longest delay and the longest period of cuts.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// An address at which a relay listens, or to which it connects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`; the host may be a name, an IPv4 address or an IPv6 address in brackets.
    Tcp(String),
    /// `unix:PATH`: a Unix socket in the file system.
    Unix(PathBuf),
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAddress(String);

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |why: &str| Err(InvalidAddress(format!("{text:?} is not an address: {why}")));
        match text.strip_prefix("unix:") {
            Some("") => return invalid("the path is empty"),
            Some(path) => return Ok(Self::Unix(path.into())),
            None => {}
        }
        if text.contains("//") {
            return invalid("write HOST:PORT or unix:PATH, not a URL");
        }
        if text.starts_with("tls:") {
            return invalid("write HOST:PORT; the relay forwards TLS unchanged");
        }
        match text.rsplit_once(':') {
            None => invalid("write HOST:PORT or unix:PATH"),
            Some(("", _)) => invalid("the host is missing: write HOST:PORT"),
            Some((host, _)) if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) => {
                invalid("write an IPv6 address in brackets: [ADDRESS]:PORT")
            }
            Some((_, port)) if port.parse::<u16>().is_err() => invalid("the port is a number up to 65535"),
            Some(_) => Ok(Self::Tcp(text.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => f.write_str(host),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidAddress {}

/// Where a relay listens, where it connects to, and the link between.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Clients connect here. Port 0 takes a free one.
    pub listen: Address,
    /// Each client is connected to this address.
    pub target: Address,
    /// The emulated link.
    pub link: LinkConfig,
    /// Equal seeds give equal random choices for equal chunks; `None` takes a random seed.
    pub seed: Option<u64>,
}

impl Config {
    /// A relay with a link that adds nothing.
    #[must_use]
    pub fn new(listen: Address, target: Address) -> Self {
        Self { listen, target, link: LinkConfig::default(), seed: None }
    }
}

/// The properties of an emulated link. The default link adds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// The delay of each direction. A round trip takes twice as long.
    pub delay: Duration,
    /// The delay of each chunk varies by at most this, uniformly to both sides.
    pub jitter: Duration,
    /// Bytes per second in each direction, shared by all connections; `None` is unlimited.
    pub rate: Option<NonZeroU64>,
    /// The probability that a chunk is lost, from 0 to less than 1. TCP sends it again, so it arrives later.
    pub loss: f64,
    /// When the link is silent.
    pub cuts: Vec<CutSchedule>,
}

/// Periodic silence of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutSchedule {
    /// A cut begins each time this has passed since the start of the relay.
    pub every: Duration,
    /// How long a cut lasts. Shorter than `every`.
    pub lasts: Duration,
}

impl LinkConfig {
    /// Checks the properties.
    ///
    /// # Errors
    /// [`StartError::Invalid`] names the wrong value.
    pub fn check(&self) -> Result<(), StartError> {
        let invalid = |message: String| Err(StartError::Invalid(message));
        if self.delay > MAX_DURATION {
            return invalid(format!("a delay of {:?} is too long: give at most {MAX_DURATION:?}", self.delay));
        }
        if self.jitter > self.delay {
            return invalid(format!(
                "a jitter of {:?} is longer than the delay of {:?}: give at most the delay",
                self.jitter, self.delay
            ));
        }
        if !(0.0..1.0).contains(&self.loss) {
            return invalid(format!("a loss of {} is no probability from 0 to less than 1", self.loss));
        }
        for CutSchedule { every, lasts } in &self.cuts {
            if lasts.is_zero() || lasts >= every || *every > MAX_DURATION {
                return invalid(format!(
                    "a cut of {lasts:?} every {every:?} is impossible: it lasts longer than 0 and shorter than its period of at most \
                     {MAX_DURATION:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Why a relay did not start.
#[derive(Debug)]
pub enum StartError {
    /// A value of the configuration is wrong. Change it.
    Invalid(String),
    /// It cannot listen at its address. Choose another one.
    Listen(Address, io::Error),
    /// The system has no thread, memory or file descriptor left.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) => f.write_str(message),
            Self::Listen(address, error) => write!(f, "cannot listen at {address}: {error}"),
            Self::System(error) => write!(f, "cannot start the relay: {error}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(_) => None,
            Self::Listen(_, error) | Self::System(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:6678", "[::1]:0", "db1:7000", "unix:/tmp/x.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_addresses_say_what_to_write() {
        for (text, words) in [
            ("localhost", "HOST:PORT"),
            (":7000", "host is missing"),
            ("::1:7000", "brackets"),
            ("db1:70000", "65535"),
            ("unix:", "empty"),
            ("tls:db1:7000", "TLS unchanged"),
            ("mortar://db1:7000", "not a URL"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn impossible_links_are_refused() {
        let ms = Duration::from_millis;
        let cut = |every, lasts| LinkConfig { cuts: vec![CutSchedule { every, lasts }], ..LinkConfig::default() };
        for (link, words) in [
            (LinkConfig { delay: MAX_DURATION + ms(1), ..LinkConfig::default() }, "too long"),
            (LinkConfig { delay: ms(20), jitter: ms(21), ..LinkConfig::default() }, "jitter"),
            (LinkConfig { loss: 1.0, ..LinkConfig::default() }, "loss"),
            (LinkConfig { loss: f64::NAN, ..LinkConfig::default() }, "loss"),
            (LinkConfig { loss: -0.1, ..LinkConfig::default() }, "loss"),
            (cut(ms(10), ms(10)), "cut"),
            (cut(ms(10), ms(0)), "cut"),
        ] {
            let error = link.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(LinkConfig::default().check().is_ok());
        assert!(cut(ms(10), ms(9)).check().is_ok());
    }
}
