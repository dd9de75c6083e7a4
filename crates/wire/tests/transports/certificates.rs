//! Certificates for tests: of an authority, servers and clients, some of them invalid.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};
use wire::transport::tls::{Client, ClientFiles, ClientVerification, Identity, Server, ServerFiles};

/// An authority, with its certificate in a file.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) ca: PathBuf,
}

/// The validity of a certificate.
#[derive(Clone, Copy)]
pub(crate) enum Age {
    Valid,
    Expired,
    NotYet,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca = dir.join(format!("{name}.pem"));
        fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), ca }
    }

    /// Issues a certificate for these names.
    pub(crate) fn issue(&self, file: &str, common_name: &str, names: &[&str], age: Age) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        match age {
            Age::Valid => {}
            Age::Expired => params.not_after = date_time_ymd(2001, 1, 1),
            Age::NotYet => params.not_before = date_time_ymd(2970, 1, 1),
        }
        if matches!(age, Age::Expired) {
            params.not_before = date_time_ymd(2000, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let dir = self.ca.parent().unwrap();
        let identity =
            Identity { certificate: dir.join(format!("{file}.pem")), key: dir.join(format!("{file}.key.pem")) };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    /// The files of a server with a certificate for localhost and 127.0.0.1.
    pub(crate) fn server(&self, age: Age) -> ServerFiles {
        let identity = self.issue("server", "server", &["localhost", "127.0.0.1"], age);
        ServerFiles { identity, clients: None }
    }

    /// The files of a server that accepts certificates of clients.
    pub(crate) fn server_for(&self, authority: &Self, required: bool) -> ServerFiles {
        let clients = Some(ClientVerification { ca: authority.ca.clone(), required });
        ServerFiles { clients, ..self.server(Age::Valid) }
    }

    /// The files of a client that trusts this authority.
    pub(crate) fn client(&self, identity: Option<Identity>) -> ClientFiles {
        ClientFiles { ca: self.ca.clone(), identity, name: None }
    }
}

pub(crate) fn server(files: ServerFiles) -> Server {
    Server::load(files).unwrap()
}

pub(crate) fn client(files: ClientFiles) -> Client {
    Client::load(files).unwrap()
}
