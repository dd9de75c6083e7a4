//! Settings of a process of a cluster: a file in TOML, and flags that override it.
//!
//! Each setting is one field of [`PartialSettings`], which both the file and the command line fill; [`Settings`] is the result.
//! An unknown key is an error: it would be a setting without effect.

use std::fmt::Write;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use client::Url;
use node::Config;
use node::auth::ClusterCredentials;
use serde::{Deserialize, Serialize};
use store::Options;
use wire::transport::Address;

mod auth;
mod connections;
mod etcd;
mod scrub;

pub(crate) use auth::AuthSettings;
pub(crate) use connections::ConnectionSettings;
pub(crate) use etcd::EtcdSettings;
use scrub::MAX_SCRUB_DAYS;
pub(crate) use scrub::ScrubRate;

use crate::failure::{Failure, Result};
use crate::serving::LogFormat;

/// The word for "not at all" in place of an address.
pub(crate) const NONE: &str = "none";
/// How much a store in memory may hold by default, in MiB.
pub(crate) const MEMORY_MIB: u32 = 8192;
/// The smallest and the largest buffer of changes, in MiB.
pub(crate) const BUFFER_MIB: RangeInclusive<i64> = 4..=MAX_MIB;
/// The largest part of memory that can be set, in MiB.
pub(crate) const MAX_MIB: i64 = 1 << 20;
/// The shortest and the longest lease of uploads, in seconds.
pub(crate) const UPLOAD_LEASE_S: RangeInclusive<i64> = 1..=24 * 3600;
/// Where a meta-server listens by default.
const DEFAULT_META_ADDRESS: &str = "127.0.0.1:6690";

/// The role of a process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProcessRole {
    /// Keeps objects
    Brick,
    /// Serves clients
    Peer,
    /// Serves the catalogue: members, spaces, placement
    Meta,
    /// Serves the clients of one site, which share what crosses the wide-area link
    Redirector,
}

impl ProcessRole {
    /// Its name, as it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Brick => "brick",
            Self::Peer => "peer",
            Self::Meta => "meta",
            Self::Redirector => "redirector",
        }
    }

    /// Its name for a person.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Brick => "Brick",
            Self::Peer => "Peer server",
            Self::Meta => "Meta-server",
            Self::Redirector => "Redirector",
        }
    }

    fn default_listen(self) -> &'static str {
        match self {
            Self::Brick => "127.0.0.1:6680",
            Self::Peer => "127.0.0.1:6678",
            Self::Meta => DEFAULT_META_ADDRESS,
            Self::Redirector => "127.0.0.1:6676",
        }
    }

    fn default_data(self) -> Option<&'static str> {
        match self {
            Self::Brick => Some("mortar-brick"),
            Self::Peer | Self::Redirector => None,
            Self::Meta => Some("mortar-meta"),
        }
    }
}

/// The settings that a file or a command line gives.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartialSettings {
    /// The role of the process
    #[arg(long)]
    role: Option<ProcessRole>,
    /// Data directory of a brick or a meta-server; made if it does not exist
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Keep everything in memory; it is lost when the process ends
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    memory: Option<bool>,
    /// The most that a store in memory holds, in MiB
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u32).range(1..))]
    memory_mib: Option<u32>,
    /// Changes in memory that are not in the B-tree yet, in MiB [default: a thousandth of the machine's
    /// memory, 12 to 256]. Of a brick and a meta-server
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u32).range(BUFFER_MIB))]
    buffer_mib: Option<u32>,
    /// Objects that a peer server keeps in memory, or bytes of blobs that a redirector keeps for its members, in MiB [default: 1/64 of
    /// the machine's memory, 64 to 4096]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u32).range(1..=MAX_MIB))]
    cache_mib: Option<u32>,
    /// How long an upload lasts at a brick after its last bytes, and uploaded bytes that no object has, in seconds
    /// [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u32).range(UPLOAD_LEASE_S))]
    upload_lease_s: Option<u32>,
    /// How many MiB a brick reads in a second at most to scrub itself; 0: it does not [default: 8]
    #[arg(long, value_name = "MIB")]
    scrub_mib_s: Option<u32>,
    /// Days from the beginning of a scrub of a brick to that of the next one [default: 7]
    #[arg(long, value_name = "DAYS", value_parser = value_parser!(u32).range(1..=MAX_SCRUB_DAYS))]
    scrub_days: Option<u32>,
    /// Listen here: HOST:PORT, tls:HOST:PORT or unix:PATH; port 0 takes a free one; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Vec<String>>,
    /// Where other processes of the cluster reach it, if not where it listens; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<Vec<String>>,
    /// Serve /metrics and /health here, or none
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// The meta-servers: mortar://HOST:PORT or mortars://HOST:PORT; may be repeated. Of a brick and a peer server
    #[arg(long, visible_alias = "join", value_name = "URL")]
    meta: Option<Vec<String>>,
    /// The servers above a redirector: mortar://HOST:PORT or mortars://HOST:PORT of peer servers, or of redirectors nearer to
    /// them; the first that answers is used; may be repeated
    #[arg(long, value_name = "URL")]
    upstream: Option<Vec<String>>,
    /// The group under whose name clients find a redirector: mortar://HOST:PORT/SPACE?group=NAME
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Keep the catalogue in this etcd, 3.4 or later, in place of a data directory: http://HOST:PORT or https://HOST:PORT of a
    /// member; may be repeated. Of a meta-server
    #[arg(long, value_name = "URL")]
    etcd: Option<Vec<String>>,
    /// Prefix of all keys in etcd, so that clusters can share one
    #[arg(long, value_name = "PREFIX")]
    etcd_namespace: Option<String>,
    /// The authorities that it trusts for members of etcd with https://
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// The client certificate that it shows to etcd, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// The user of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// The file with the password of that user, readable only by its owner; it is read at each login
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// The secret that authenticates the processes of the cluster: the same file for all, readable only by its owner
    #[arg(long, value_name = "FILE")]
    cluster_secret: Option<PathBuf>,
    /// The certificate that it shows over TLS, in PEM, with those that lead to its authority
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authorities that it trusts for servers that it connects to
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The authorities that it trusts for clients: a client certificate replaces a password
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", requires = "tls_client_ca")]
    tls_require_client_cert: Option<bool>,
    /// Allow addresses that other machines can reach without users or TLS
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    insecure: Option<bool>,
    /// Open a data directory that other users of this machine can enter
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    allow_loose_permissions: Option<bool>,
    /// Threads that serve connections [default: one for every two processors, at most 16]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=256))]
    io_threads: Option<u16>,
    /// Connections at a time; 32 more are for administrators [default: 4096]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1 << 20))]
    max_connections: Option<u32>,
    /// Connections of one user [default: half of all]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1 << 20))]
    max_connections_per_user: Option<u32>,
    /// Connections from one address, or of one local user over a Unix socket; not over loopback [default: half of all]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1 << 20))]
    max_connections_per_address: Option<u32>,
    /// Memory for requests that have arrived in part, in MiB [default: 512]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u32).range(64..=1 << 20))]
    unfinished_input_mib: Option<u32>,
    /// Log level, such as info or warn,store=debug; MORTAR_LOG overrides it
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Format of the log on the error stream
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// How a process is run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) role: ProcessRole,
    /// The directory of its data; none in memory, and none of a peer server.
    pub(crate) data: Option<PathBuf>,
    pub(crate) memory: bool,
    pub(crate) memory_mib: u32,
    pub(crate) sizes: MemorySizes,
    /// How long uploads last at a brick after their last bytes, in seconds; `None` for the default.
    pub(crate) upload_lease_s: Option<u32>,
    pub(crate) scrub: ScrubRate,
    pub(crate) listen: Vec<Address>,
    pub(crate) advertise: Vec<Address>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) meta: Vec<Address>,
    /// The servers above a redirector.
    pub(crate) upstream: Vec<Address>,
    /// The group that a redirector serves.
    pub(crate) group: Option<String>,
    /// Where a meta-server keeps the catalogue, if not in a store.
    pub(crate) etcd: Option<EtcdSettings>,
    pub(crate) auth: AuthSettings,
    pub(crate) insecure: bool,
    pub(crate) allow_loose_permissions: bool,
    pub(crate) io_threads: Option<u16>,
    pub(crate) connections: ConnectionSettings,
    pub(crate) log: Option<String>,
    pub(crate) log_format: LogFormat,
}

/// How much memory a process uses for what it could read or write again, in MiB; `None` for the default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemorySizes {
    /// Changes that are not in the B-tree yet, of a brick and a meta-server.
    pub(crate) buffer_mib: Option<u32>,
    /// Objects that a peer server keeps.
    pub(crate) cache_mib: Option<u32>,
}

impl MemorySizes {
    /// The most changes in memory, in bytes.
    pub(crate) fn buffer_bytes(self) -> usize {
        self.buffer_mib.map_or_else(|| Options::for_machine().mob_bytes, mib)
    }

    /// The most cached objects, in bytes.
    fn cache_bytes(self) -> usize {
        self.cache_mib.map_or_else(|| Config::default().cache_bytes, mib)
    }
}

/// Bytes of a number of MiB.
pub(crate) fn mib(mib: u32) -> usize {
    (mib as usize) << 20
}

impl PartialSettings {
    /// The settings of a meta-server whose data is in a directory.
    pub(crate) fn of_catalogue_in(data: &Path) -> Self {
        Self { role: Some(ProcessRole::Meta), data: Some(data.to_owned()), ..Self::default() }
    }

    /// The settings in a file. Paths in it are relative to its directory.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).map_err(|e| Failure::file(format!("cannot read {}", path.display()), &e))?;
        let mut given: Self = toml::from_str(&text).map_err(|error| {
            Failure::usage(format!("{}: {}", path.display(), error.to_string().trim_end()))
                .hint("`mortar node --role ROLE --print-config` shows all settings there are.")
        })?;
        if let Some(dir) = path.parent() {
            given.paths().into_iter().flatten().for_each(|file| *file = dir.join(&*file));
        }
        Ok(given)
    }

    /// All settings that are paths.
    fn paths(&mut self) -> [&mut Option<PathBuf>; 10] {
        [
            &mut self.data,
            &mut self.cluster_secret,
            &mut self.tls_cert,
            &mut self.tls_key,
            &mut self.tls_ca,
            &mut self.tls_client_ca,
            &mut self.etcd_ca,
            &mut self.etcd_cert,
            &mut self.etcd_key,
            &mut self.etcd_password_file,
        ]
    }

    /// These settings, completed by those of `other`.
    pub(crate) fn with_fallback(self, other: Self) -> Result<Self> {
        if let (Some(one), Some(two)) = (self.role, other.role)
            && one != two
        {
            let message = format!("the file is for a process with the role {}, not {}", two.name(), one.name());
            return Err(Failure::usage(message));
        }
        Ok(Self {
            role: self.role.or(other.role),
            data: self.data.or(other.data),
            memory: self.memory.or(other.memory),
            memory_mib: self.memory_mib.or(other.memory_mib),
            buffer_mib: self.buffer_mib.or(other.buffer_mib),
            cache_mib: self.cache_mib.or(other.cache_mib),
            upload_lease_s: self.upload_lease_s.or(other.upload_lease_s),
            scrub_mib_s: self.scrub_mib_s.or(other.scrub_mib_s),
            scrub_days: self.scrub_days.or(other.scrub_days),
            listen: self.listen.or(other.listen),
            advertise: self.advertise.or(other.advertise),
            http: self.http.or(other.http),
            meta: self.meta.or(other.meta),
            upstream: self.upstream.or(other.upstream),
            group: self.group.or(other.group),
            etcd: self.etcd.or(other.etcd),
            etcd_namespace: self.etcd_namespace.or(other.etcd_namespace),
            etcd_ca: self.etcd_ca.or(other.etcd_ca),
            etcd_cert: self.etcd_cert.or(other.etcd_cert),
            etcd_key: self.etcd_key.or(other.etcd_key),
            etcd_user: self.etcd_user.or(other.etcd_user),
            etcd_password_file: self.etcd_password_file.or(other.etcd_password_file),
            cluster_secret: self.cluster_secret.or(other.cluster_secret),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            tls_require_client_cert: self.tls_require_client_cert.or(other.tls_require_client_cert),
            insecure: self.insecure.or(other.insecure),
            allow_loose_permissions: self.allow_loose_permissions.or(other.allow_loose_permissions),
            io_threads: self.io_threads.or(other.io_threads),
            max_connections: self.max_connections.or(other.max_connections),
            max_connections_per_user: self.max_connections_per_user.or(other.max_connections_per_user),
            max_connections_per_address: self.max_connections_per_address.or(other.max_connections_per_address),
            unfinished_input_mib: self.unfinished_input_mib.or(other.unfinished_input_mib),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
        })
    }
}

/// How long a meta-server that ends waits for its connections.
const META_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

impl Settings {
    /// The settings that follow from the given ones and the defaults.
    pub(crate) fn resolve(given: PartialSettings) -> Result<Self> {
        let role = given.role.ok_or_else(|| {
            Failure::usage("the role of the process is missing")
                .hint("Give --role brick, --role peer, --role meta or --role redirector.")
        })?;
        let memory = given.memory.unwrap_or(false);
        let refuse = |is_given: bool, what: &str, why: &str| match is_given {
            true => Err(Failure::usage(format!("{what} is no setting of a {}: {why}", role.title().to_lowercase()))),
            false => Ok(()),
        };
        if matches!(role, ProcessRole::Peer | ProcessRole::Redirector) {
            refuse(given.data.is_some(), "data", "it keeps nothing")?;
            refuse(memory, "memory", "it keeps nothing")?;
            refuse(given.buffer_mib.is_some(), "buffer_mib", "it keeps nothing")?;
        }
        if !matches!(role, ProcessRole::Peer | ProcessRole::Redirector) {
            refuse(given.cache_mib.is_some(), "cache_mib", "only a peer server and a redirector have this cache")?;
        }
        if role != ProcessRole::Brick {
            refuse(given.upload_lease_s.is_some(), "upload_lease_s", "only a brick takes uploads")?;
            refuse(given.scrub_mib_s.is_some(), "scrub_mib_s", "only a brick scrubs itself")?;
            refuse(given.scrub_days.is_some(), "scrub_days", "only a brick scrubs itself")?;
        }
        match role {
            ProcessRole::Meta => refuse(given.meta.is_some(), "meta", "it is one")?,
            ProcessRole::Redirector => refuse(given.meta.is_some(), "meta", "it knows only the servers above it")?,
            _ => {}
        }
        match role {
            ProcessRole::Redirector if given.group.is_none() => {
                refuse(given.advertise.is_some(), "advertise", "without a group its clients name its address")?;
            }
            ProcessRole::Redirector => {}
            _ => {
                refuse(given.upstream.is_some(), "upstream", "only a redirector has servers above it")?;
                refuse(given.group.is_some(), "group", "only a redirector serves one")?;
            }
        }
        let etcd = EtcdSettings::of(&given)?;
        if role != ProcessRole::Meta {
            refuse(etcd.is_some(), "etcd", "only a meta-server uses it")?;
        }
        if etcd.is_some() && (memory || given.data.is_some()) {
            return Err(Failure::usage("the catalogue is either in etcd, or in a data directory, or in memory"));
        }
        let auth = AuthSettings::of(&given)?;
        let connections = ConnectionSettings::of(&given);
        let listen = given.listen.unwrap_or_else(|| vec![role.default_listen().to_owned()]);
        let meta = given.meta.unwrap_or_else(|| vec![format!("mortar://{DEFAULT_META_ADDRESS}")]);
        let upstream = match (role, given.upstream) {
            (ProcessRole::Redirector, None) => {
                return Err(Failure::usage("a redirector needs the server above it")
                    .hint("Give --upstream mortar://HOST:PORT of a peer server."));
            }
            (_, upstream) => upstream.unwrap_or_default(),
        };
        let settings = Self {
            role,
            data: given.data.or_else(|| role.default_data().map(PathBuf::from)).filter(|_| !memory && etcd.is_none()),
            memory,
            memory_mib: given.memory_mib.unwrap_or(MEMORY_MIB),
            sizes: MemorySizes { buffer_mib: given.buffer_mib, cache_mib: given.cache_mib },
            upload_lease_s: given.upload_lease_s,
            scrub: ScrubRate { mib_s: given.scrub_mib_s, days: given.scrub_days }.check()?,
            listen: listen.iter().map(|text| Ok(text.parse()?)).collect::<Result<_>>()?,
            advertise: given
                .advertise
                .unwrap_or_default()
                .iter()
                .map(|text| Ok(text.parse()?))
                .collect::<Result<_>>()?,
            http: parse_http_address(given.http.as_deref().unwrap_or(NONE))?,
            meta: meta.iter().map(|text| Ok(text.parse::<Url>()?.address)).collect::<Result<_>>()?,
            group: given.group,
            upstream: upstream.iter().map(|text| Ok(text.parse::<Url>()?.address)).collect::<Result<_>>()?,
            etcd,
            auth,
            insecure: given.insecure.unwrap_or(false),
            allow_loose_permissions: given.allow_loose_permissions.unwrap_or(false),
            io_threads: given.io_threads,
            connections,
            log: given.log,
            log_format: given.log_format.unwrap_or_default(),
        };
        if settings.auth.cert.is_none() && settings.listen.iter().any(|address| matches!(address, Address::Tls(_))) {
            return Err(Failure::usage("an address that speaks TLS needs a certificate and its key")
                .hint("Give --tls-cert FILE and --tls-key FILE; `mortar cert` makes some for trying."));
        }
        let is_advertised = role != ProcessRole::Redirector || settings.group.is_some();
        if is_advertised && settings.advertise.is_empty() && settings.listen.iter().any(is_everywhere) {
            return Err(Failure::usage(
                "it listens at every address of this machine, so the address for other processes is unknown",
            )
            .hint("Give --advertise HOST:PORT."));
        }
        Ok(settings)
    }

    /// The same for the part that serves.
    pub(crate) fn config(&self) -> Result<Config> {
        let threads = self.io_threads.map_or(Config::default().threads, usize::from);
        let (listen, http, insecure) = (self.listen.clone(), self.http, self.insecure);
        let (tls, membership) = (self.auth.load()?.tls.clone(), self.membership()?);
        let (connections, unfinished_input_bytes) =
            (self.connections.limits(), self.connections.unfinished_input_bytes());
        let defaults = Config::default();
        let shutdown_timeout = match self.role {
            // Watches of the catalogue end only with their connections, and everything else is answered at once.
            ProcessRole::Meta => META_SHUTDOWN_TIMEOUT,
            ProcessRole::Brick | ProcessRole::Peer | ProcessRole::Redirector => defaults.shutdown_timeout,
        };
        Ok(Config {
            listen,
            tls,
            shutdown_timeout,
            cluster_credentials: membership,
            http,
            insecure,
            threads,
            connections,
            unfinished_input_bytes,
            cache_bytes: self.sizes.cache_bytes(),
            upload_lease: self.upload_lease(),
            scrub: self.scrub.settings(),
            ..defaults
        })
    }

    fn upload_lease(&self) -> Duration {
        self.upload_lease_s.map_or(Config::default().upload_lease, |seconds| Duration::from_secs(u64::from(seconds)))
    }

    /// The credentials towards other processes of the cluster.
    pub(crate) fn membership(&self) -> Result<ClusterCredentials> {
        Ok(ClusterCredentials { insecure: self.insecure, ..self.auth.load()?.membership.clone() })
    }

    /// A file with these settings and a description of each.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        for (about, line) in self.storage_lines().into_iter().chain(self.network_lines()).chain(self.serving_lines()) {
            for about in about.lines() {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "# {about}");
            }
            let _ = writeln!(text, "{line}\n");
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    /// The role and the location of the data.
    fn storage_lines(&self) -> Vec<SettingLine> {
        let mut lines =
            vec![line("What the process is: brick, peer, meta or redirector.", "role", toml_string(self.role.name()))];
        if matches!(self.role, ProcessRole::Peer | ProcessRole::Redirector) {
            let about = match self.role {
                ProcessRole::Redirector => "The most bytes of blobs that it keeps for its members, in MiB.",
                _ => "The most objects that it keeps in memory, in MiB.",
            };
            let cache = line(about, "cache_mib", (self.sizes.cache_bytes() >> 20).to_string());
            lines.push(comment_unless(self.sizes.cache_mib.is_some(), cache));
        }
        if matches!(self.role, ProcessRole::Peer | ProcessRole::Redirector) {
            return lines;
        }
        let data = self.data.clone().or_else(|| self.role.default_data().map(PathBuf::from)).unwrap_or_default();
        let data = line(
            "Where it keeps its data; made if it does not exist.\n\
             A path that is not absolute begins at this file's directory.",
            "data",
            toml_string(&data.display().to_string()),
        );
        lines.push(comment_unless(self.data.is_some(), data));
        let about = "Keep everything in memory instead: nothing survives the process.";
        lines.push(line(about, "memory", self.memory.to_string()));
        let about = "The most that a store in memory holds, in MiB.";
        lines.push(line(about, "memory_mib", self.memory_mib.to_string()));
        let about = "The most changes in memory that are not in the B-tree yet, in MiB. The process takes about 2.5 times as much.";
        let buffer = line(about, "buffer_mib", (self.sizes.buffer_bytes() >> 20).to_string());
        lines.push(comment_unless(self.sizes.buffer_mib.is_some(), buffer));
        if self.role == ProcessRole::Brick {
            let about =
                "How long an upload lasts after its last bytes, and uploaded bytes that no object has, in seconds.";
            let lease = line(about, "upload_lease_s", self.upload_lease().as_secs().to_string());
            lines.push(comment_unless(self.upload_lease_s.is_some(), lease));
            lines.extend(self.scrub.lines());
        }
        if self.role == ProcessRole::Meta {
            lines.extend(EtcdSettings::lines(self.etcd.as_ref()));
        }
        lines
    }

    /// The addresses of the process and of others.
    fn network_lines(&self) -> Vec<SettingLine> {
        let addresses = |addresses: &[Address]| toml_list(addresses.iter().map(Address::to_string));
        let about = "Where it listens: HOST:PORT, tls:HOST:PORT or unix:PATH; port 0 takes a free one.";
        let mut lines = vec![line(about, "listen", addresses(&self.listen))];
        if self.role != ProcessRole::Redirector || self.group.is_some() {
            let others = if self.advertise.is_empty() { &self.listen } else { &self.advertise };
            let others = line("Where others of the cluster reach it, if not there.", "advertise", addresses(others));
            lines.push(comment_unless(!self.advertise.is_empty(), others));
        }
        let http = self.http.map_or_else(|| NONE.to_owned(), |http| http.to_string());
        lines.push(line("Where it answers /metrics and /health: HOST:PORT, or none.", "http", toml_string(&http)));
        let urls = |addresses: &[Address]| toml_list(addresses.iter().map(meta_url));
        match self.role {
            ProcessRole::Meta => {}
            ProcessRole::Redirector => {
                let about = "The servers above it, of which the first that answers is used.";
                lines.push(line(about, "upstream", urls(&self.upstream)));
                let about = "The group under whose name clients find it: mortar://HOST:PORT/SPACE?group=NAME.";
                let group = line(about, "group", toml_string(self.group.as_deref().unwrap_or("site")));
                lines.push(comment_unless(self.group.is_some(), group));
            }
            ProcessRole::Brick | ProcessRole::Peer => {
                lines.push(line("The meta-servers; all serve the same catalogue.", "meta", urls(&self.meta)));
            }
        }
        lines
    }

    /// How the process serves.
    fn serving_lines(&self) -> Vec<SettingLine> {
        let mut lines = self.auth.lines();
        let about = "Allow addresses that other machines can reach without users or TLS.";
        lines.push(line(about, "insecure", self.insecure.to_string()));
        if self.data.is_some() {
            let about = "Open a data directory that other users of this machine can enter.";
            lines.push(line(about, "allow_loose_permissions", self.allow_loose_permissions.to_string()));
        }
        let threads = self.io_threads.map_or(Config::default().threads, usize::from);
        let about = "Threads that serve connections; by default one for every two processors, at most 16.";
        lines.push(comment_unless(self.io_threads.is_some(), line(about, "io_threads", threads.to_string())));
        lines.extend(self.connections.lines());
        let log = line(
            "How much is logged on the error stream: error, warn, info, debug, trace, or by part: warn,store=debug.\n\
             The environment variable MORTAR_LOG counts for more.",
            "log",
            toml_string(self.log.as_deref().unwrap_or("info")),
        );
        lines.push(comment_unless(self.log.is_some(), log));
        let format = if self.log_format == LogFormat::Json { "json" } else { "text" };
        lines.push(line("How the log looks: text or json.", "log_format", toml_string(format)));
        lines
    }
}

/// A setting in a file: its description and the line.
type SettingLine = (&'static str, String);

fn line(about: &'static str, key: &str, value: String) -> SettingLine {
    (about, format!("{key} = {value}"))
}

/// A setting that is a comment unless it was given.
fn comment_unless(is_given: bool, (about, line): SettingLine) -> SettingLine {
    (about, if is_given { line } else { format!("# {line}") })
}

/// The URL of a meta-server.
pub(crate) fn meta_url(address: &Address) -> String {
    let url = Url { user: None, address: address.clone(), space: String::new() }.to_string();
    match address {
        // Without a trailing slash, the whole path of an existing socket is taken.
        Address::Unix(_) => url,
        _ => url.trim_end_matches('/').to_owned(),
    }
}

/// Whether an address stands for all addresses of a machine.
fn is_everywhere(address: &Address) -> bool {
    match address {
        Address::Tcp(host) | Address::Tls(host) => {
            host.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified())
        }
        Address::Unix(_) | Address::InProcess(_) => false,
    }
}

/// Parses an address for HTTP.
pub(crate) fn parse_http_address(text: &str) -> Result<Option<SocketAddr>> {
    if text == NONE {
        return Ok(None);
    }
    let addresses = text.to_socket_addrs().map_err(|e| Failure::usage(format!("--http {text}: {e}")))?;
    let first = addresses.into_iter().next();
    first.map(Some).ok_or_else(|| Failure::usage(format!("--http {text}: the name has no address")))
}

/// A text in TOML.
fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

fn toml_list(texts: impl Iterator<Item = String>) -> String {
    format!("[{}]", texts.map(|text| toml_string(&text)).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
