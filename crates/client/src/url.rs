//! URLs of servers.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::str::FromStr;

use model::{Error, ErrorKind, Result};
use wire::transport::{Address, DEFAULT_PORT};

const TCP: &str = "mortar://";
const TLS: &str = "mortars://";
const UNIX: &str = "mortar+unix://";
const DEFAULT_SPACE: &str = "main";

/// `mortar://[USER@]HOST[:PORT][/SPACE]`, the same over TLS as `mortars://[USER@]HOST[:PORT][/SPACE]`, or
/// `mortar+unix://[USER@]/PATH/OF/SOCKET[/SPACE]`. A URL never has a password, because URLs are printed and logged.
///
/// The default port is [`DEFAULT_PORT`], the default space `main`. The last component of a path is the space, unless the whole path
/// is a socket, or a directory is before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// The user that connects. Without one, it is the user of the client's certificate, or none.
    pub user: Option<String>,
    /// Where the server listens.
    pub address: Address,
    /// The name of the object space.
    pub space: String,
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return parse_unix(text, path);
        }
        let (plain, over_tls) = (text.strip_prefix(TCP), text.strip_prefix(TLS));
        let Some(rest) = plain.or(over_tls) else {
            let forms = "mortar://HOST:PORT/SPACE, mortars://HOST:PORT/SPACE or mortar+unix:///PATH/SPACE";
            return Err(Error::new(ErrorKind::Invalid, format!("{text:?} is not the URL of a server: write {forms}")));
        };
        let (host, space) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = split_user(text, host)?;
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let host = if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") };
        let host = if over_tls.is_some() { format!("tls:{host}") } else { host };
        Ok(Self { user, address: host.parse()?, space: space_name(text, space)? })
    }
}

/// A URL without `?group=NAME` at its end, and the name of the group.
///
/// # Errors
/// [`ErrorKind::Invalid`] if something else follows a question mark.
pub fn split_group(url: &str) -> Result<(&str, Option<&str>)> {
    let Some((base, query)) = url.rsplit_once('?').filter(|(_, query)| !query.contains('/')) else {
        return Ok((url, None));
    };
    match query.strip_prefix("group=") {
        Some(group) if !group.is_empty() && !group.contains(['&', '=']) => Ok((base, Some(group))),
        _ => {
            let what = format!("{url:?} is not the URL of a server: only ?group=NAME may follow the space");
            Err(Error::new(ErrorKind::Invalid, what))
        }
    }
}

/// The user before a host, and the host.
fn split_user<'a>(text: &str, host: &'a str) -> Result<(Option<String>, &'a str)> {
    let Some((user, host)) = host.rsplit_once('@') else { return Ok((None, host)) };
    // The text may be a password: the message does not repeat it.
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let wrong =
        |why| Err(Error::new(ErrorKind::Invalid, format!("{scheme}://…@{host} is not the URL of a server: {why}")));
    if user.contains(':') {
        return wrong("a URL has no password, because others can see it");
    }
    if user.is_empty() {
        return wrong("the user name before the @ is missing");
    }
    Ok((Some(user.to_owned()), host))
}

fn parse_unix(text: &str, path: &str) -> Result<Url> {
    let wrong = |why| Error::new(ErrorKind::Invalid, format!("{text:?} is not the URL of a server: {why}"));
    let (user, path) = match path.find("@/") {
        Some(at) if !path[..at].contains('/') => (split_user(text, &path[..=at])?.0, &path[at + 1..]),
        _ => (None, path),
    };
    if !path.starts_with('/') {
        return Err(wrong("the path of a Unix socket must be absolute: write mortar+unix:///PATH/SPACE"));
    }
    if fs::metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        return Ok(Url { user, address: Address::Unix(path.into()), space: DEFAULT_SPACE.to_owned() });
    }
    let (socket, space) = path.rsplit_once('/').unwrap_or((path, ""));
    if socket.is_empty() {
        return Err(Error::new(ErrorKind::Unavailable, format!("there is no socket {path}")));
    }
    // A directory is no socket: the last component is the name of one that does not exist.
    if fs::metadata(socket).is_ok_and(|file| file.is_dir()) {
        return Ok(Url { user, address: Address::Unix(path.into()), space: DEFAULT_SPACE.to_owned() });
    }
    Ok(Url { user, address: Address::Unix(socket.into()), space: space_name(text, space)? })
}

fn space_name(text: &str, space: &str) -> Result<String> {
    if space.contains('/') {
        let why = "the name of a space has no slash";
        return Err(Error::new(ErrorKind::Invalid, format!("{text:?} is not the URL of a server: {why}")));
    }
    Ok(if space.is_empty() { DEFAULT_SPACE } else { space }.to_owned())
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.iter().map(|user| format!("{user}@")).collect::<String>();
        match &self.address {
            Address::Tcp(host) => write!(f, "{TCP}{user}{host}/{}", self.space),
            Address::Tls(host) => write!(f, "{TLS}{user}{host}/{}", self.space),
            Address::Unix(path) => write!(f, "{UNIX}{user}{}/{}", path.display(), self.space),
            // No URL leads into another process.
            Address::InProcess(_) => write!(f, "{user}{}/{}", self.address, self.space),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (String, String) {
        let url: Url = text.parse().unwrap();
        (url.address.to_string(), url.space)
    }

    #[test]
    fn port_and_space_have_defaults() {
        assert_eq!(parse("mortar://localhost"), ("localhost:6678".to_owned(), "main".to_owned()));
        assert_eq!(parse("mortar://localhost:1/photos"), ("localhost:1".to_owned(), "photos".to_owned()));
        assert_eq!(parse("mortar://[::1]/"), ("[::1]:6678".to_owned(), "main".to_owned()));
        assert_eq!(parse("mortar://[::1]:7/x"), ("[::1]:7".to_owned(), "x".to_owned()));
    }

    #[test]
    fn tls_is_in_the_scheme() {
        assert_eq!(parse("mortars://localhost"), ("tls:localhost:6678".to_owned(), "main".to_owned()));
        let url: Url = "mortars://[::1]:7/x".parse().unwrap();
        assert_eq!(url.to_string(), "mortars://[::1]:7/x");
    }

    #[test]
    fn user_stands_before_the_host_and_a_password_is_refused_and_not_repeated() {
        for (text, user) in [
            ("mortars://ann@localhost:7/x", "ann"),
            ("mortar://ann@example.org@localhost:7/x", "ann@example.org"),
            ("mortar+unix://ann@/run/none.sock/x", "ann"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(url.user.as_deref(), Some(user));
            assert_eq!(url.to_string(), text);
        }
        for text in ["mortars://ann:secret@localhost/x", "mortar+unix://ann:secret@/run/x/main", "mortar://@localhost"]
        {
            let refused = text.parse::<Url>().unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
    }

    #[test]
    fn last_part_of_a_path_is_the_space() {
        assert_eq!(parse("mortar+unix:///run/none.sock/photos"), ("unix:/run/none.sock".to_owned(), "photos".into()));
        assert_eq!(parse("mortar+unix:///run/none.sock/"), ("unix:/run/none.sock".to_owned(), "main".into()));
    }

    #[test]
    fn whole_path_that_is_a_socket_means_the_main_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("brick");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let text = format!("mortar+unix://{}", path.display());
        assert_eq!(parse(&text), (format!("unix:{}", path.display()), "main".to_owned()));
        assert_eq!(parse(&format!("{text}/x")).1, "x");
    }

    #[test]
    fn last_part_below_a_directory_is_a_socket_that_does_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("mortar+unix://{}/none.sock", dir.path().display());
        let address = format!("unix:{}/none.sock", dir.path().display());
        assert_eq!(parse(&text), (address.clone(), "main".to_owned()));
        assert_eq!(parse(&format!("{text}/photos")), (address, "photos".to_owned()));
    }

    #[test]
    fn group_stands_at_the_end() {
        for (url, expected) in [
            ("mortar://a/main", ("mortar://a/main", None)),
            ("mortar://a,b/main?group=shed", ("mortar://a,b/main", Some("shed"))),
            ("mortars://a?group=the shed", ("mortars://a", Some("the shed"))),
            ("mortar+unix:///what?/socket", ("mortar+unix:///what?/socket", None)),
        ] {
            assert_eq!(split_group(url).unwrap(), expected);
        }
        for url in ["mortar://a/main?group=", "mortar://a?groups=x", "mortar://a/main?group=a&b=c"] {
            assert!(split_group(url).is_err(), "{url}");
        }
    }

    #[test]
    fn texts_of_other_shapes_are_refused() {
        for text in
            ["", "localhost", "http://localhost", "mortar://", "mortar://a:b", "mortar+unix://run/x", "mortar://h/a/b"]
        {
            assert!(text.parse::<Url>().is_err(), "{text:?}");
        }
    }
}
