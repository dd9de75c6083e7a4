//! Which server a command talks to, and how it gets there.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use client::{Client, ConnectOptions, Url};

use crate::args::Global;
use crate::failure::Result;
use crate::output::Output;

/// Where `mortar dev` keeps its data unless told otherwise.
pub(crate) const DATA: &str = "mortar-data";
/// The socket in a data directory.
pub(crate) const SOCKET: &str = "mortar.sock";
/// Where `mortar dev` listens unless told otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:6678";
/// What every command that talks to a server has: where to print, and whom to ask.
pub(crate) struct Session {
    /// Where results go.
    pub(crate) output: Output,
    /// The server's URL, if one was given.
    server: Option<String>,
    /// The space, if one was given beside the URL.
    space: Option<String>,
    /// How long to wait for a connection.
    timeout: Duration,
}

impl Session {
    /// A session that prints to `output` and connects as the command line says.
    pub(crate) fn new(output: Output, global: &Global) -> Self {
        Self { output, server: global.server.clone(), space: global.space.clone(), timeout: global.timeout }
    }

    /// A connection to the server that was named, or to the one that is likely meant.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let url = match &self.server {
            Some(url) => url.clone(),
            None => likely_url(Path::new(DATA)),
        };
        let mut url: Url = url.parse()?;
        if let Some(space) = &self.space {
            url.space.clone_from(space);
        }
        let mut options = ConnectOptions::default();
        options.timeout = self.timeout;
        options.agent = concat!("mortar ", env!("CARGO_PKG_VERSION")).to_owned();
        Ok(Client::connect_with(&url.to_string(), options).await?)
    }
}

/// The socket of a server whose data is in `data`, if it answers; else the usual port.
fn likely_url(data: &Path) -> String {
    let socket = data.join(SOCKET);
    // A socket that nobody answers behind was left by a crash.
    match UnixStream::connect(&socket) {
        Ok(_) => socket_url(&std::path::absolute(&socket).unwrap_or(socket)),
        Err(_) => format!("mortar://{LISTEN}/main"),
    }
}

/// The URL of the space `main` behind a socket.
pub(crate) fn socket_url(socket: &Path) -> String {
    format!("mortar+unix://{}/main", socket.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_socket_in_the_data_directory_goes_before_the_port() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(likely_url(dir.path()), "mortar://127.0.0.1:6678/main");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let expected = format!("mortar+unix://{}/mortar.sock/main", dir.path().display());
        assert_eq!(likely_url(dir.path()), expected);
        drop(listener);
        assert_eq!(likely_url(dir.path()), "mortar://127.0.0.1:6678/main", "left by a crash");
    }
}
