//! TLS: identification by certificates, and the addresses at which a server may listen.

use std::fs;
use std::sync::Arc;

use client::{AdminClient, AdminOptions, Credentials, ErrorKind, tls};
use meta::catalog::{CatalogEditor, Permission};
use meta::{Embedded, MetaStore};
use node::auth::ClusterCredentials;
use node::meta::MetaServer;
use node::{Config, Redirector, RedirectorSettings};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use wire::proto::account::SetPassword;
use wire::proto::account::administer::Action;
use wire::transport::tls::{ClientFiles, ClientVerification, ServerFiles};

use super::expect_denied;
use super::world::{World, run};

/// A certificate authority, and the files of the certificates that it has issued.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut says = CertificateParams::new(Vec::new()).unwrap();
        says.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        says.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        fs::write(dir.path().join("ca.pem"), says.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(says, key), dir }
    }

    fn ca(&self) -> std::path::PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn issue(&self, name: &str) -> tls::Identity {
        let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut says = CertificateParams::new(hosts).unwrap();
        says.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let file = |end| self.dir.path().join(format!("{name}.{end}"));
        fs::write(file("pem"), says.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        tls::Identity { certificate: file("pem"), key: file("key") }
    }

    fn client(&self, identity: Option<tls::Identity>) -> tls::Client {
        tls::Client::load(ClientFiles { ca: self.ca(), identity, name: None }).unwrap()
    }

    fn config(&self, listen: &str) -> Config {
        let identity = self.issue("mortar-node");
        let clients = Some(ClientVerification { ca: self.ca(), required: false });
        let server = ServerFiles { identity: identity.clone(), clients };
        let membership = ClusterCredentials { tls: Some(self.client(Some(identity))), ..ClusterCredentials::default() };
        let tls = Some(wire::transport::tls::Server::load(server).unwrap());
        Config {
            listen: vec![listen.parse().unwrap()],
            tls,
            cluster_credentials: membership,
            threads: 1,
            ..Config::default()
        }
    }
}

#[test]
fn certificates_and_passwords_identify_processes_and_users_over_tls() {
    run(async {
        let authority = Authority::new();
        let world = World::start(&|| authority.config("tls:127.0.0.1:0")).await;
        world.add("root", None).await;
        world.add("ann", Some(Permission::Read)).await;
        let connect = async |tls: Option<tls::Client>, credentials: Option<(&str, &str)>| {
            let mut options = AdminOptions::default();
            options.tls = tls;
            options.credentials =
                credentials.map(|(user, password)| Credentials { user: user.into(), password: password.into() });
            AdminClient::connect_with(&World::url(world.peer.addresses()), options).await
        };
        let trusting = || Some(authority.client(None));
        assert!(connect(Some(authority.client(Some(authority.issue("ann")))), None).await.is_ok());
        assert!(connect(trusting(), Some(("ann", "right one"))).await.is_ok());
        // Only a user identified by a certificate may remove passwords, at peer servers and at the meta-server.
        let forget = || Action::SetPassword(SetPassword { user: "root".to_owned(), hash: None });
        let root = connect(trusting(), Some(("root", "right one"))).await.unwrap();
        let refused = root.administer(forget()).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Invalid && refused.message().contains("certificate"), "{refused}");
        let root = connect(Some(authority.client(Some(authority.issue("root")))), None).await.unwrap();
        root.administer(forget()).await.unwrap();
        world.editor.set_password("root", Some("right one")).await.unwrap();
        let mut options = AdminOptions::default();
        options.tls = Some(authority.client(Some(authority.issue("root"))));
        let at_meta = AdminClient::connect_with(&World::url(world.meta.addresses()), options).await.unwrap();
        at_meta.administer(forget()).await.unwrap();
        expect_denied(connect(trusting(), Some(("ann", "wrong"))).await);
        expect_denied(connect(trusting(), None).await);
        expect_denied(connect(Some(authority.client(Some(authority.issue("unknown")))), None).await);
        // With another authority, neither side trusts the other.
        let other = Authority::new();
        assert!(
            expect_denied(connect(Some(other.client(None)), Some(("ann", "right one"))).await).contains("authority")
        );
        let both = ClientFiles { ca: authority.ca(), identity: Some(other.issue("ann")), name: None };
        expect_denied(connect(Some(tls::Client::load(both).unwrap()), None).await);
        // A client without TLS at a TLS port, and the reverse.
        let plain = World::url(world.peer.addresses()).replace("mortars://", "mortar://");
        let refused = AdminClient::connect(&plain).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unsupported && refused.message().contains("mortars://"), "{refused}");
        let (unsafe_world, _) = World::without_users().await;
        let url = World::url(unsafe_world.peer.addresses()).replace("mortar://", "mortars://");
        let mut options = AdminOptions::default();
        options.tls = trusting();
        let refused = AdminClient::connect_with(&url, options).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unsupported && refused.message().contains("mortar://"), "{refused}");
    });
}

/// With the certificate of the redirector's process, the peer server would take each member for a process of the cluster.
#[test]
fn members_of_a_redirector_are_not_admitted_by_its_certificate() {
    run(async {
        let authority = Authority::new();
        let world = World::start(&|| authority.config("tls:127.0.0.1:0")).await;
        world.add("root", None).await;
        world.add("ann", Some(Permission::Read)).await;
        for listen in ["127.0.0.1:0", "tls:127.0.0.1:0"] {
            let upstream = world.peer.addresses().to_vec();
            let settings = RedirectorSettings { upstream, ..RedirectorSettings::default() };
            let redirector = Redirector::start(settings, authority.config(listen)).await.unwrap();
            let connect = async |identity: Option<&str>, credentials: Option<(&str, &str)>| {
                let mut options = AdminOptions::default();
                options.tls = Some(authority.client(identity.map(|name| authority.issue(name))));
                options.credentials =
                    credentials.map(|(user, password)| Credentials { user: user.into(), password: password.into() });
                AdminClient::connect_with(&World::url(redirector.addresses()), options).await
            };
            expect_denied(connect(None, None).await);
            expect_denied(connect(None, Some(("", "a guess"))).await);
            expect_denied(connect(None, Some(("ann", "wrong"))).await);
            // It cannot pass on a certificate.
            expect_denied(connect(Some("ann"), None).await);
            let ann = connect(None, Some(("ann", "right one"))).await.unwrap();
            expect_denied(ann.create_space("more").await);
            redirector.shutdown().await.unwrap();
        }
    });
}

#[test]
fn listening_beyond_loopback_requires_tls_and_users_or_the_insecure_option() {
    run(async {
        let authority = Authority::new();
        let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let start = async |config: Config| MetaServer::start(store.clone(), config).await;
        let refused = async |config: Config| {
            let refused = start(config).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
            refused.message().to_owned()
        };
        let plain = || Config { listen: vec!["0.0.0.0:0".parse().unwrap()], threads: 1, ..Config::default() };
        assert!(refused(plain()).await.contains("--tls-cert"));
        assert!(refused(authority.config("tls:0.0.0.0:0")).await.contains("mortar user add"));
        start(Config { insecure: true, ..plain() }).await.unwrap().shutdown().await.unwrap();
        CatalogEditor::new(store.clone()).create_user("root", Some("right one"), &[]).await.unwrap();
        assert!(refused(plain()).await.contains("--tls-cert"));
        start(authority.config("tls:0.0.0.0:0")).await.unwrap().shutdown().await.unwrap();
        let http = Some("0.0.0.0:0".parse().unwrap());
        let config = Config { http, ..authority.config("tls:127.0.0.1:0") };
        assert!(refused(config).await.contains("HTTP"));
    });
}
