//! The server that a command uses, and the connection to it.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use client::{
    AdminClient, AdminOptions, Client, ConnectOptions, Credentials, Error, ServerIdentity, Url, split_group, tls,
};
use meta::catalog::{BrickEntry, BrickId, MemberRequest};

use crate::args::{Global, Identity};
use crate::commands::member;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::password;

/// The default data directory of `mortar dev`.
pub(crate) const DATA: &str = "mortar-data";
/// The socket in a data directory.
pub(crate) const SOCKET: &str = "mortar.sock";
/// The default address of `mortar dev`.
pub(crate) const LISTEN: &str = "127.0.0.1:6678";
/// The URL of that address.
const DEFAULT_URL: &str = "mortar://127.0.0.1:6678/main";
/// The name of this program for servers.
const AGENT: &str = concat!("mortar ", env!("CARGO_PKG_VERSION"));

/// How long a command waits at its end until its servers know that it has gone.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// The context of a command that uses a server: its output and its connection options.
pub(crate) struct CommandContext {
    /// Where results go.
    pub(crate) output: Output,
    /// The server's URL, if one was given.
    server: Option<String>,
    /// The space, if one was given beside the URL.
    space: Option<String>,
    /// Timeout of connecting and of each request to a cluster.
    timeout: Duration,
    /// How long an unavailable request is repeated; `None`: the default.
    retry: Option<Duration>,
    /// Credentials and trusted authorities.
    identity: Identity,
    /// The password, once it is known.
    password: OnceLock<String>,
    /// The clients of the command.
    clients: Mutex<Vec<Client>>,
}

impl CommandContext {
    /// A context that prints to `output` and connects as the command line requests.
    pub(crate) fn new(output: Output, global: &Global) -> Self {
        let (server, space) = (global.server.clone(), global.space.clone());
        let identity = global.identity.clone();
        let (password, clients) = (OnceLock::new(), Mutex::default());
        Self { output, server, space, timeout: global.timeout, retry: None, identity, password, clients }
    }

    /// The trusted authorities and the own certificate for TLS.
    fn tls(&self) -> Result<Option<tls::Client>> {
        let Identity { ca, cert, key, .. } = &self.identity;
        let identity = cert.clone().zip(key.clone());
        let identity = identity.map(|(certificate, key)| tls::Identity { certificate, key });
        let files = ca.clone().map(|ca| tls::ClientFiles { ca, identity, name: None });
        Ok(files.map(tls::Client::load).transpose()?)
    }

    /// The credentials for a URL with this user. Asks for the password if none was given.
    fn credentials(&self, user: Option<&str>) -> Result<Option<Credentials>> {
        let Some(user) = self.identity.user.as_deref().or(user) else { return Ok(None) };
        let user = user.to_owned();
        if let Some(password) = self.password.get() {
            return Ok(Some(Credentials { user, password: password.clone() }));
        }
        let password = match password::read_given(self.identity.password_file.as_deref())? {
            Some(given) => given,
            // The certificate authenticates the user.
            None if self.identity.cert.is_some() => String::new(),
            None => password::prompt(&format!("Password of {user}: "))?,
        };
        let password = self.password.get_or_init(|| password).clone();
        Ok(Some(Credentials { user, password }))
    }

    /// The user that connects, if one was named.
    pub(crate) fn user(&self) -> Option<String> {
        let url = self.server.as_deref().map(split_hosts).unwrap_or_default();
        let of_url = url.first().and_then(|url| url.parse::<Url>().ok()).and_then(|url| url.user);
        self.identity.user.clone().or(of_url)
    }

    /// Sets the space that is used in place of the URL's. Returns the one before.
    pub(crate) fn set_space(&mut self, space: Option<String>) -> Option<String> {
        std::mem::replace(&mut self.space, space)
    }

    /// Timeout of connecting and of each request to a cluster.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Limits how long an unavailable request is repeated.
    pub(crate) fn set_retry(&mut self, retry: Duration) {
        self.retry = Some(retry);
    }

    /// The servers in the order in which they are tried: those that were named, else the one of the local data directory, and if none listens
    /// there, the one at the default port.
    fn candidate_urls(&self) -> Vec<String> {
        match &self.server {
            Some(url) => split_hosts(url),
            // A socket without a server was left by a crash.
            None => match socket_in(Path::new(DATA)).filter(|socket| UnixStream::connect(socket).is_ok()) {
                Some(socket) => vec![socket_url(&socket)],
                None => vec![DEFAULT_URL.to_owned()],
            },
        }
    }

    /// A connection to the first server that answers.
    pub(crate) async fn connect(&self) -> Result<AdminClient> {
        first_that_answers(self.candidate_urls(), async |url| self.connect_as(&url, false).await).await
    }

    /// A connection without a space, for requests about the whole cluster such as its users.
    pub(crate) async fn connect_to_cluster(&self) -> Result<AdminClient> {
        first_that_answers(self.candidate_urls(), async |url| self.connect_as(&url, true).await).await
    }

    /// A connection to each brick of the cluster, with its number and state; to the server itself if that is a brick.
    pub(crate) async fn bricks(&self) -> Result<Vec<(Option<BrickId>, AdminClient)>> {
        let client = self.connect_to_cluster().await?;
        if client.status().await?.role == "brick" {
            return Ok(vec![(None, client)]);
        }
        let mut bricks = Vec::new();
        for brick in member::ask(&client, &MemberRequest::List).await?.bricks {
            let what = format!("brick {}", brick.brick);
            let explain = |failure: Failure| failure.context(&what).hint(unreachable_brick_hint(&brick));
            if brick.addresses.is_empty() {
                let why = "it was not started since the cluster was restored";
                return Err(explain(Failure::with(Exit::Unavailable, "unavailable", why)));
            }
            let urls = brick.addresses.iter().map(|address| {
                let address = address.parse()?;
                Ok(Url { user: self.user(), address, space: String::new() }.to_string())
            });
            let urls = urls.collect::<client::Result<Vec<_>>>()?;
            let identity = ServerIdentity { cluster: client.identity().cluster.clone(), brick: brick.brick.0 };
            let connect = async |url: String| {
                let client = self.connect_as(&url, true).await?;
                let found = identity.check(client.identity());
                found.map_err(|error| Failure::from(error).context("it does not run at its address"))?;
                Ok(client)
            };
            bricks.push((Some(brick.brick), first_that_answers(urls, connect).await.map_err(explain)?));
        }
        Ok(bricks)
    }

    /// A client of the named cluster, which may have several peer servers.
    pub(crate) async fn cluster(&self) -> Result<Client> {
        self.cluster_of(None).await
    }

    /// A client of the cluster for a space, if one is given.
    pub(crate) async fn cluster_of(&self, space: Option<&str>) -> Result<Client> {
        let mut options = ConnectOptions::default();
        (options.connect_timeout, options.timeout) = (self.timeout, self.timeout);
        options.agent = AGENT.to_owned();
        options.tls = self.tls()?;
        options.credentials = self.credentials(self.user().as_deref())?;
        options.insecure = self.identity.plaintext;
        // The client itself tries the servers of one URL.
        let urls = self.server.as_ref().map_or_else(|| self.candidate_urls(), |url| vec![url.clone()]);
        let connect = async |url: String| {
            let url = match space.or(self.space.as_deref()) {
                Some(space) => with_space(&url, space)?,
                None => url,
            };
            Client::connect_with(&url, options.clone()).await.map_err(explain_connect)
        };
        let client = first_that_answers(urls, connect).await?;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        Ok(client)
    }

    /// Closes the clients of the command, so that their servers know at once what they leave.
    pub(crate) async fn close_clients(&self) {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap_or_else(PoisonError::into_inner));
        clients.iter().for_each(Client::close);
        let shut_down = async {
            for client in clients {
                // Only a store in this process can fail to close.
                let _ = client.shutdown().await;
            }
        };
        // Servers that hang are not waited for.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, shut_down).await;
    }

    /// The URLs of all named servers: a cluster may have several peer servers.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.server.as_deref().map(split_hosts).unwrap_or_default()
    }

    /// The space that was named apart from the URL.
    pub(crate) fn space_named(&self) -> Option<String> {
        self.space.clone()
    }

    /// A connection to this server.
    pub(crate) async fn connect_to(&self, url: &str) -> Result<AdminClient> {
        self.connect_as(url, false).await
    }

    async fn connect_as(&self, url: &str, spaceless: bool) -> Result<AdminClient> {
        let mut url: Url = split_group(url)?.0.parse()?;
        if let Some(space) = &self.space {
            url.space.clone_from(space);
        }
        let mut options = AdminOptions::default();
        options.timeout = self.timeout;
        options.agent = AGENT.to_owned();
        options.tls = self.tls()?;
        options.credentials = self.credentials(url.user.as_deref())?;
        options.insecure = self.identity.plaintext;
        options.spaceless = spaceless;
        options.patience = Some(self.timeout);
        options.retry = self.retry.unwrap_or(options.retry).min(self.timeout);
        AdminClient::connect_with(&url.to_string(), options).await.map_err(explain_connect)
    }
}

/// What to do about a brick that cannot be reached.
fn unreachable_brick_hint(BrickEntry { brick, nodes, coming, .. }: &BrickEntry) -> String {
    match nodes + coming {
        0 => format!(
            "Start it again, or take it out of the cluster if it has ended for good: `mortar brick remove {brick}`."
        ),
        _ => format!(
            "Start it again: it serves objects. To take it out of the cluster, empty it while it runs, with `mortar remap --drain {brick}`."
        ),
    }
}

/// The failure to connect, with a hint if no server listens.
fn explain_connect(error: Error) -> Failure {
    let refused = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
    let no_server = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    let is_unreachable = refused.is_some_and(|refused| no_server.contains(&refused.kind()));
    let failure = Failure::from(error);
    match is_unreachable {
        true => failure.hint(
            "Start a server with `mortar dev` or a cluster with `mortar cluster up`, or name one that runs with --server URL \
             or MORTAR_URL.",
        ),
        false => failure,
    }
}

/// The result of the first URL whose server answers.
async fn first_that_answers<T>(urls: Vec<String>, connect: impl AsyncFn(String) -> Result<T>) -> Result<T> {
    let mut first = None;
    for url in urls {
        match connect(url).await {
            Err(failure) if failure.exit() == Exit::Unavailable => drop(first.get_or_insert(failure)),
            connected => return connected,
        }
    }
    Err(first.unwrap_or_else(|| Failure::usage("the URL names no server")))
}

/// The URL with another space.
fn with_space(url: &str, space: &str) -> Result<String> {
    let (url, group) = split_group(url)?;
    let group = group.map(|group| format!("?group={group}")).unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let hosts = rest.split('/').next().unwrap_or_default();
    if scheme.starts_with("mortar") && hosts.contains(',') {
        return Ok(format!("{scheme}://{hosts}/{space}{group}"));
    }
    let url: Url = url.parse()?;
    Ok(Url { space: space.to_owned(), ..url }.to_string() + &group)
}

/// The URLs of the hosts in a URL with several hosts.
fn split_hosts(url: &str) -> Vec<String> {
    // What is wrong with a group is reported by those who connect.
    let url = split_group(url).map_or(url, |(url, _)| url);
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (hosts, space) = rest.split_once('/').unwrap_or((rest, ""));
    if !scheme.starts_with("mortar") || scheme == "mortar+unix" || !hosts.contains(',') {
        return vec![url.to_owned()];
    }
    // The user precedes the first host and applies to all.
    let (user, hosts) = hosts.rsplit_once('@').map_or(("", hosts), |(user, hosts)| (user, hosts));
    let at = if user.is_empty() { "" } else { "@" };
    hosts.split(',').map(|host| format!("{scheme}://{user}{at}{host}/{space}")).collect()
}

/// The socket of a server with this data directory, if it exists.
fn socket_in(data: &Path) -> Option<PathBuf> {
    let socket = data.join(SOCKET);
    let is_there = fs::symlink_metadata(&socket).is_ok_and(|file| file.file_type().is_socket());
    is_there.then(|| std::path::absolute(&socket).unwrap_or(socket))
}

/// The URL of the space `main` for a socket.
fn socket_url(socket: &Path) -> String {
    format!("mortar+unix://{}/main", socket.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn several_hosts_are_several_servers() {
        assert_eq!(split_hosts("mortar://a:1,b:2/x"), ["mortar://a:1/x", "mortar://b:2/x"]);
        assert_eq!(split_hosts("mortars://ann@a:1,b:2/x"), ["mortars://ann@a:1/x", "mortars://ann@b:2/x"]);
        for one in ["mortar://a:1/x", "mortar+unix:///a,b/x", "a,b"] {
            assert_eq!(split_hosts(one), [one]);
        }
    }

    #[test]
    fn another_space_takes_the_place_of_the_one_in_the_url() {
        for (url, changed) in [
            ("mortar://a:1,b:2/x", "mortar://a:1,b:2/y"),
            ("mortar://a:1,b:2", "mortar://a:1,b:2/y"),
            ("mortars://ann@a:1,b:2", "mortars://ann@a:1,b:2/y"),
            ("mortars://ann@a:1/x", "mortars://ann@a:1/y"),
            ("mortar://a", "mortar://a:6678/y"),
            ("mortar+unix:///a/s/x", "mortar+unix:///a/s/y"),
        ] {
            assert_eq!(with_space(url, "y").unwrap(), changed);
        }
        assert!(with_space("a,b", "y").is_err());
    }

    #[test]
    fn a_socket_in_the_data_directory_is_found_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(socket_in(dir.path()), None);
        let path = dir.path().join(SOCKET);
        fs::write(&path, "").unwrap();
        assert_eq!(socket_in(dir.path()), None);
        fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(socket_in(dir.path()), Some(path));
    }
}
