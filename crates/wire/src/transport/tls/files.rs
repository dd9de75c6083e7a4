//! Certificates and keys in files, and the TLS configurations made from them.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Error, ErrorKind, Result};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tracing::{info, warn};

/// Most bytes of a file of certificates. The authorities that a system trusts take a quarter of it.
const MAX_FILE: u64 = 1 << 20;

/// The identity of a server or client: PEM files with a certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain of certificates, its own one first.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// How a server verifies certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientVerification {
    /// A PEM file with the certificates of the authorities.
    pub ca: PathBuf,
    /// Whether clients without a certificate are refused.
    pub required: bool,
}

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its identity.
    pub identity: Identity,
    /// Whether clients may, or must, have certificates; `None`: they are not requested.
    pub clients: Option<ClientVerification>,
}

/// The files of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// A PEM file with the certificates of the authorities that it trusts.
    pub ca: PathBuf,
    /// Its identity, for servers that request one.
    pub identity: Option<Identity>,
    /// The name that the server's certificate must have, if not the host of the address.
    pub name: Option<String>,
}

/// The TLS configuration of a server. Clones share it.
#[derive(Clone, Debug)]
pub struct Server(Arc<ReloadingConfig<ServerFiles, ServerConfig>>);

impl Server {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid; the error names it.
    pub fn load(files: ServerFiles) -> Result<Self> {
        ReloadingConfig::load(files).map(Arc::new).map(Self)
    }

    /// Reads the files again, for new connections. This also happens when they have changed.
    ///
    /// # Errors
    /// As [`Server::load`]; the previous configuration stays in use.
    pub fn reload(&self) -> Result<()> {
        self.0.reload()
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

/// The TLS configuration of a client. Clones share it.
#[derive(Clone, Debug)]
pub struct Client(Arc<ReloadingConfig<ClientFiles, ClientConfig>>);

impl Client {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid; the error names it.
    pub fn load(files: ClientFiles) -> Result<Self> {
        ReloadingConfig::load(files).map(Arc::new).map(Self)
    }

    /// A client with the same authorities that shows no certificate of its own.
    ///
    /// # Errors
    /// As [`Client::load`].
    pub fn without_identity(&self) -> Result<Self> {
        Self::load(ClientFiles { identity: None, ..self.0.files.clone() })
    }

    /// Reads the files again, for new connections. This also happens when they have changed.
    ///
    /// # Errors
    /// As [`Client::load`]; the previous configuration stays in use.
    pub fn reload(&self) -> Result<()> {
        self.0.reload()
    }

    pub(super) fn current(&self) -> Arc<ClientConfig> {
        self.0.current()
    }

    pub(super) fn files(&self) -> &ClientFiles {
        &self.0.files
    }
}

/// Files from which a configuration is made.
trait ConfigFiles: Sized {
    type Config;
    fn paths(&self) -> Vec<&Path>;
    fn build_config(&self) -> Result<Self::Config>;
}

#[derive(Debug)]
struct ReloadingConfig<F, C> {
    files: F,
    state: Mutex<LoadedConfig<C>>,
}

#[derive(Debug)]
struct LoadedConfig<C> {
    config: Arc<C>,
    /// The state of the files when they were last checked.
    seen: Vec<Option<FileStamp>>,
}

/// Attributes of a file that change when it is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    modified: (i64, i64),
    len: u64,
}

impl<C, F: ConfigFiles<Config = C>> ReloadingConfig<F, C> {
    fn load(files: F) -> Result<Self> {
        let seen = stamps(&files);
        let config = Arc::new(files.build_config()?);
        Ok(Self { files, state: Mutex::new(LoadedConfig { config, seen }) })
    }

    fn lock(&self) -> MutexGuard<'_, LoadedConfig<C>> {
        // The fields are independent, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self) -> Result<()> {
        let mut state = self.lock();
        state.seen = stamps(&self.files);
        state.config = Arc::new(self.files.build_config()?);
        Ok(())
    }

    /// The configuration of the current files, or of the last valid ones.
    fn current(&self) -> Arc<C> {
        let mut state = self.lock();
        let now = stamps(&self.files);
        if state.seen != now {
            state.seen = now;
            match self.files.build_config() {
                Ok(config) => {
                    state.config = Arc::new(config);
                    info!("reloaded the changed certificates");
                }
                Err(error) => warn!(%error, "the changed certificates are invalid; the previous ones stay in use"),
            }
        }
        state.config.clone()
    }
}

fn stamps(files: &impl ConfigFiles) -> Vec<Option<FileStamp>> {
    let stamp =
        |file: Metadata| FileStamp { inode: file.ino(), modified: (file.mtime(), file.mtime_nsec()), len: file.len() };
    files.paths().into_iter().map(|path| fs::metadata(path).ok().map(stamp)).collect()
}

impl ConfigFiles for ServerFiles {
    type Config = ServerConfig;

    fn paths(&self) -> Vec<&Path> {
        let ca = self.clients.iter().map(|clients| clients.ca.as_path());
        [self.identity.certificate.as_path(), self.identity.key.as_path()].into_iter().chain(ca).collect()
    }

    fn build_config(&self) -> Result<ServerConfig> {
        let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let config = config.map_err(internal)?;
        let config = match &self.clients {
            None => config.with_no_client_auth(),
            Some(clients) => {
                let roots = Arc::new(authorities(&clients.ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
                config.with_client_cert_verifier(verifier.build().map_err(internal)?)
            }
        };
        let (chain, key) = self.identity.read()?;
        config.with_single_cert(chain, key).map_err(|error| self.identity.key_mismatch(error))
    }
}

impl ConfigFiles for ClientFiles {
    type Config = ClientConfig;

    fn paths(&self) -> Vec<&Path> {
        let identity = self.identity.iter().flat_map(|identity| [&identity.certificate, &identity.key]);
        [&self.ca].into_iter().chain(identity).map(PathBuf::as_path).collect()
    }

    fn build_config(&self) -> Result<ClientConfig> {
        let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let config = config.map_err(internal)?.with_root_certificates(authorities(&self.ca)?);
        match &self.identity {
            None => Ok(config.with_no_client_auth()),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                config.with_client_auth_cert(chain, key).map_err(|error| identity.key_mismatch(error))
            }
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "TLS cannot be set up").with_source(error)
}

impl Identity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let key = read(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| pem_error(&self.key, "no private key", error))?;
        Ok((certificates(&self.certificate)?, key))
    }

    fn key_mismatch(&self, error: tokio_rustls::rustls::Error) -> Error {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let what = format!("the certificate in {certificate} and the key in {key} do not match");
        Error::new(ErrorKind::Invalid, what).with_source(error)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Error::new(kind, format!("{} cannot be read", path.display())).with_source(error)
    };
    let file = fs::metadata(path).map_err(failed)?;
    if file.len() > MAX_FILE {
        let what = format!("{} has {} bytes: too many for certificates and keys", path.display(), file.len());
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    fs::read(path).map_err(failed)
}

fn pem_error(path: &Path, what: &str, error: pem::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} has {what} in PEM", path.display())).with_source(error)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| pem_error(path, "damaged certificates", error))?;
    if found.is_empty() {
        return Err(pem_error(path, "no certificate", pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn authorities(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            let what = format!("{} has a certificate that is not one of an authority", path.display());
            Error::new(ErrorKind::Invalid, what).with_source(error)
        })?;
    }
    Ok(roots)
}
