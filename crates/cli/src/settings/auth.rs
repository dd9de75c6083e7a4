//! Credentials of a process, and the authorities that it trusts, as files.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use node::auth::{ClusterCredentials, Secret};
use tracing::{info, warn};
use wire::transport::tls::{self, ClientFiles, ClientVerification, Identity, ServerFiles};

use super::{PartialSettings, SettingLine, comment_unless, line, toml_string};
use crate::failure::{Failure, Result};

/// Credentials of a process, and the authorities that it trusts.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthSettings {
    secret: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    require_client_cert: bool,
    loaded: OnceLock<LoadedAuth>,
}

/// The credentials that the files contain.
#[derive(Clone, Debug)]
pub(crate) struct LoadedAuth {
    pub(super) tls: Option<tls::Server>,
    pub(super) membership: ClusterCredentials,
}

impl AuthSettings {
    pub(super) fn of(given: &PartialSettings) -> Result<Self> {
        let doors = Self {
            secret: given.cluster_secret.clone(),
            cert: given.tls_cert.clone(),
            key: given.tls_key.clone(),
            ca: given.tls_ca.clone(),
            client_ca: given.tls_client_ca.clone(),
            require_client_cert: given.tls_require_client_cert.unwrap_or(false),
            loaded: OnceLock::new(),
        };
        if doors.cert.is_some() != doors.key.is_some() {
            return Err(Failure::usage("tls_cert and tls_key go together: a certificate, and its key"));
        }
        if doors.client_ca.is_some() && doors.cert.is_none() {
            return Err(Failure::usage("tls_client_ca requires TLS: give tls_cert and tls_key too"));
        }
        if doors.require_client_cert && doors.client_ca.is_none() {
            return Err(Failure::usage("tls_require_client_cert needs the trusted authorities: give tls_client_ca"));
        }
        Ok(doors)
    }

    /// The settings of a process whose secret is in this file.
    pub(crate) fn with_secret_file(file: &Path) -> Self {
        Self { secret: Some(file.to_owned()), ..Self::default() }
    }

    /// The settings of processes that share a secret without a file.
    pub(crate) fn with_shared_secret(secret: Secret) -> Self {
        let membership = ClusterCredentials { secret: Some(secret), ..ClusterCredentials::default() };
        Self { loaded: LoadedAuth { tls: None, membership }.into(), ..Self::default() }
    }

    /// The contents of the files, which are read at the first call.
    pub(super) fn load(&self) -> Result<&LoadedAuth> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let own = self.cert.clone().zip(self.key.clone());
        let own = own.map(|(certificate, key)| Identity { certificate, key });
        let required = self.require_client_cert;
        let clients = self.client_ca.clone().map(|ca| ClientVerification { ca, required });
        let server = own.clone().map(|identity| tls::Server::load(ServerFiles { identity, clients })).transpose()?;
        let files = self.ca.clone().map(|ca| ClientFiles { ca, identity: own, name: None });
        let client = files.map(tls::Client::load).transpose()?;
        let secret = self.secret.as_deref().map(Secret::load).transpose()?;
        let membership = ClusterCredentials { secret, tls: client, insecure: false };
        Ok(self.loaded.get_or_init(|| LoadedAuth { tls: server, membership }))
    }

    /// Reads the files again at once. Otherwise that happens when they have changed.
    pub(crate) fn reload(&self) {
        let Ok(LoadedAuth { tls, membership }) = self.load() else { return };
        let done = [
            tls.as_ref().map(tls::Server::reload),
            membership.tls.as_ref().map(tls::Client::reload),
            membership.secret.as_ref().map(Secret::reload),
        ];
        let (good, bad): (Vec<_>, Vec<_>) = done.into_iter().flatten().partition(|done| done.is_ok());
        for error in bad.into_iter().filter_map(|done| done.err()) {
            warn!(%error, "a file is invalid; its previous contents stay in use");
        }
        info!(files = good.len(), "read certificates and secrets again");
    }

    pub(super) fn lines(&self) -> Vec<SettingLine> {
        let files: [(&'static str, &str, &Option<PathBuf>, &str); 5] = [
            (
                "The secret that authenticates the processes of the cluster: the same file for all, readable only by its owner.\n\
                 Needed as soon as the cluster has users, unless they have certificates for mortar-node.",
                "cluster_secret",
                &self.secret,
                "cluster.secret",
            ),
            ("The certificate of this process for TLS, in PEM.", "tls_cert", &self.cert, "node.pem"),
            ("The key of that certificate.", "tls_key", &self.key, "node.key"),
            ("The authorities that it trusts for servers that it connects to.", "tls_ca", &self.ca, "ca.pem"),
            (
                "The authorities that it trusts for clients: a client certificate replaces a password.",
                "tls_client_ca",
                &self.client_ca,
                "ca.pem",
            ),
        ];
        let shown = |file: &Option<PathBuf>, example: &str| {
            toml_string(&file.as_deref().unwrap_or(Path::new(example)).display().to_string())
        };
        let mut lines: Vec<SettingLine> = files
            .into_iter()
            .map(|(about, key, file, example)| comment_unless(file.is_some(), line(about, key, shown(file, example))))
            .collect();
        let required = line("Refuse clients without a certificate.", "tls_require_client_cert", "true".to_owned());
        lines.push(comment_unless(self.require_client_cert, required));
        lines
    }
}
