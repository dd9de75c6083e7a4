//! Who may come in, and what they may do: clusters in one process, with users, permissions and TLS.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use client::cluster::{Cluster, ClusterOptions, CommitOutcome, Event, IsolationLevel, Transaction};
use client::{Client, ConnectOptions, Credentials, ErrorKind, tls};
use meta::catalog::{ADMINISTRATORS, CatalogEditor, Grantee, Permission, SpaceOptions};
use meta::{Embedded, MetaStore, Revision};
use model::{FailurePolicy, Object, Oid};
use node::auth::{ClusterCredentials, Secret};
use node::cluster_view::ClusterView;
use node::member::{self, Identity, Member};
use node::meta::{MetaServer, RemoteMetaStore};
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use store::{Options, Store};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time;
use wire::handshake::{self, Role};
use wire::proto::account::SetPassword;
use wire::proto::account::administer::Action;
use wire::transport::tls::{ClientFiles, ClientVerification, ServerFiles};
use wire::transport::{self, Address, Stream};

/// A cluster of one of each, whose processes know each other by what `config` says.
struct World {
    editor: CatalogEditor,
    cluster_view: Arc<ClusterView>,
    meta: MetaServer,
    brick: Brick,
    peer: PeerServer,
    _member: Member,
}

impl World {
    async fn start(config: &dyn Fn() -> Config) -> Self {
        let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(store.clone());
        let meta = MetaServer::start(store, config()).await.unwrap();
        let membership = config().cluster_credentials;
        let remote = RemoteMetaStore::new_as(meta.addresses().to_vec(), membership, Role::Brick).unwrap();
        let realm = ClusterView::follow(Arc::new(remote)).await.unwrap();
        let store = Store::in_memory(Options::default()).unwrap();
        let id = member::brick_of(&realm, &store, &config().listen).await.unwrap();
        let brick = Brick::start_in(realm.clone(), BrickId(id.0), store, config()).await.unwrap();
        let start = editor.start_number().await.unwrap();
        let member = Member::announce(&realm, Identity::Brick(id), start, brick.addresses()).await.unwrap();
        realm.create_space("main", SpaceOptions { nodes: Some(1), ..SpaceOptions::default() }).await.unwrap();
        let start = editor.start_number().await.unwrap();
        let peer = PeerServer::start(realm.clone(), start.0, config()).await.unwrap();
        let world = Self { editor, cluster_view: realm, meta, brick, peer, _member: member };
        world.reach(&world.editor.set_up(&meta::catalog::Parameters::generate()).await.unwrap().revision).await;
        world
    }

    /// On loopback, with a secret.
    async fn without_users() -> (Self, Secret) {
        let secret = Secret::generate();
        let known = secret.clone();
        let config = move || {
            let membership = ClusterCredentials { secret: Some(known.clone()), ..ClusterCredentials::default() };
            Config {
                listen: vec!["127.0.0.1:0".parse().unwrap()],
                cluster_credentials: membership,
                threads: 1,
                ..Config::default()
            }
        };
        (Self::start(&config).await, secret)
    }

    /// The same with users: root may do everything; others what they are granted. All have the password `right one`.
    async fn with(users: &[(&str, Option<Permission>)]) -> (Self, Secret) {
        let (world, secret) = Self::without_users().await;
        world.add("root", None).await;
        for (name, permission) in users {
            world.add(name, *permission).await;
        }
        (world, secret)
    }

    async fn add(&self, name: &str, permission: Option<Permission>) {
        self.editor.create_user(name, Some("right one"), &[]).await.unwrap();
        let granted = self.editor.grant("main", Grantee::User(name), permission).await.unwrap();
        self.reach(&granted.revision).await;
    }

    async fn reach(&self, revision: &Revision) {
        self.cluster_view.wait_for_revision(*revision).await.unwrap();
    }

    async fn grant(&self, name: &str, permission: Option<Permission>) {
        let granted = self.editor.grant("main", Grantee::User(name), permission).await.unwrap();
        self.reach(&granted.revision).await;
    }

    fn url(of: &[Address]) -> String {
        match &of[0] {
            Address::Tls(host) => format!("mortars://{host}/main"),
            plain => format!("mortar://{plain}/main"),
        }
    }

    async fn client(&self, name: &str, password: &str) -> client::Result<Client> {
        Self::client_at(self.peer.addresses(), name, password).await
    }

    async fn client_at(addresses: &[Address], name: &str, password: &str) -> client::Result<Client> {
        let mut options = ConnectOptions::default();
        options.retry = Duration::ZERO;
        if !(name.is_empty() && password.is_empty()) {
            options.credentials = Some(Credentials { user: name.to_owned(), password: password.to_owned() });
        }
        Client::connect_with(&Self::url(addresses), options).await
    }

    async fn cluster(&self, name: &str) -> client::Result<Cluster> {
        let mut options = ClusterOptions::default();
        options.credentials = Some(Credentials { user: name.to_owned(), password: "right one".to_owned() });
        options.timeout = Duration::from_secs(20);
        Cluster::connect_with(&Self::url(self.peer.addresses()), options).await
    }
}

fn denied<T: std::fmt::Debug>(result: client::Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    error.message().to_owned()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { time::timeout(Duration::from_secs(120), test).await.expect("the test hangs") });
}

/// Makes an object with this text, which is its name too.
async fn create(cluster: &Cluster, text: &'static str) -> client::Result<Oid> {
    let bind = async |t: Transaction| {
        let oid = t.create_blob(text)?;
        t.bind(text, oid).await
    };
    cluster.transact(bind).await?;
    Ok(cluster.begin(IsolationLevel::Optimistic).resolve(text).await?.unwrap())
}

#[test]
fn every_door_lets_in_whom_it_should_and_nobody_else() {
    run(async {
        let (world, secret) = World::with(&[("ann", Some(Permission::Write)), ("bob", None)]).await;
        let secret = secret.primary();
        // The peer server: who has a permission in the space.
        for (name, password, fits) in [
            ("ann", "right one", true),
            ("root", "right one", true),
            ("", secret.as_str(), true),
            ("ann", "wrong", false),
            ("bob", "right one", false),
            ("nobody", "right one", false),
            ("", "", false),
            ("", "wrong", false),
        ] {
            let come = world.client(name, password).await;
            assert_eq!(come.is_ok(), fits, "{name} {come:?}");
            if !fits {
                denied(come);
            }
        }
        // The meta-server has a copy of the catalogue of its own, which may be a moment behind.
        while World::client_at(world.meta.addresses(), "root", "right one").await.is_err() {}
        // Brick and meta-server: processes of the cluster and administrators alone.
        for addresses in [world.brick.addresses(), world.meta.addresses()] {
            assert!(World::client_at(addresses, "root", "right one").await.is_ok());
            assert!(World::client_at(addresses, "", &secret).await.is_ok());
            assert!(denied(World::client_at(addresses, "ann", "right one").await).contains("administrator"));
            denied(World::client_at(addresses, "", "").await);
        }
        let stranger =
            RemoteMetaStore::new_as(world.meta.addresses().to_vec(), ClusterCredentials::default(), Role::Peer)
                .unwrap();
        assert_eq!(stranger.get(Vec::new()).await.unwrap_err().kind(), ErrorKind::Denied);
    });
}

#[test]
fn a_permission_allows_what_it_says_and_no_more() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Read))]).await;
        let (ann, bob) = (world.cluster("ann").await.unwrap(), world.cluster("bob").await.unwrap());
        let oid = create(&ann, "first").await.unwrap();
        assert_eq!(bob.get(oid).await.unwrap().unwrap().data, "first");
        assert_eq!(bob.read_cached(oid).await.unwrap().unwrap().data, "first");
        // Creating asks for pages, changing does not.
        assert!(denied(create(&bob, "second").await).contains("write"));
        let change = async |t: Transaction| {
            t.get(oid).await?;
            t.put(oid, Object::blob("changed".into())).await
        };
        denied(bob.transact(change).await);
        denied(bob.put(oid, Object::blob("changed".into())).await);
        denied(bob.begin(IsolationLevel::Locks).get_for_update(oid).await);
        assert_eq!(ann.get(oid).await.unwrap().unwrap().data, "first");
        // Reading goes on, in transactions too.
        let read = bob.begin(IsolationLevel::Optimistic);
        assert!(read.get(oid).await.unwrap().is_some());
        assert!(matches!(read.commit().await.unwrap(), CommitOutcome::Committed(_)));
        // A space is made by administrators.
        let (as_ann, as_root) =
            (world.client("ann", "right one").await.unwrap(), world.client("root", "right one").await.unwrap());
        denied(as_ann.create_space("more").await);
        as_root.create_space("more").await.unwrap();
        let names = |spaces: Vec<client::SpaceInfo>| spaces.into_iter().map(|space| space.name).collect::<Vec<_>>();
        assert_eq!(names(as_ann.spaces().await.unwrap()), ["main"], "others are not her business");
        assert_eq!(names(as_root.spaces().await.unwrap()), ["main", "more"]);
    });
}

#[test]
fn who_may_read_hears_of_the_space_and_who_administers_it_says_its_policy() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Read))]).await;
        let bob = world.cluster("bob").await.unwrap();
        let mut events = bob.events().unwrap();
        let mut next =
            async || time::timeout(Duration::from_secs(30), events.next()).await.expect("an event comes").unwrap();
        let Event::Connected { status: standing, .. } = next().await else { panic!("it is told how things are") };
        assert_eq!((standing.space.as_str(), standing.policy), ("main", FailurePolicy::Continue));
        let ann = world.client("ann", "right one").await.unwrap();
        denied(ann.set_failure_policy("main", FailurePolicy::FailStop).await);
        denied(ann.set_failure_policy("none", FailurePolicy::FailStop).await);
        world.grant("ann", Some(Permission::Admin)).await;
        ann.set_failure_policy("main", FailurePolicy::FailStop).await.unwrap();
        assert_eq!(next().await, Event::PolicyChanged(FailurePolicy::FailStop));
        // Who may not read any more hears nothing more, until it may again.
        world.grant("bob", None).await;
        assert!(matches!(next().await, Event::Disconnected { .. }));
        assert!(matches!(next().await, Event::Refused { why } if why.contains("no permission to read")));
        ann.set_failure_policy("main", FailurePolicy::Continue).await.unwrap();
        ann.set_failure_policy("main", FailurePolicy::FailStop).await.unwrap();
        ann.set_failure_policy("main", FailurePolicy::Continue).await.unwrap();
        world.grant("bob", Some(Permission::Read)).await;
        assert!(matches!(next().await, Event::Connected { status, .. } if status.policy == FailurePolicy::Continue));
        assert_eq!(next().await, Event::PolicyChanged(FailurePolicy::Continue));
    });
}

/// A peer server that lets nobody in.
struct DenyAll;

impl handshake::HandshakeAuthenticator for DenyAll {
    async fn admit(
        &mut self,
        _: &wire::proto::Hello,
        _: &transport::RemoteEndpoint,
    ) -> client::Result<handshake::Terms> {
        Err(client::Error::new(ErrorKind::Denied, "nobody is let in here"))
    }
}

#[test]
fn whom_one_peer_server_does_not_let_in_goes_on_with_the_next() {
    run(async {
        let (world, secret) = World::without_users().await;
        let membership = ClusterCredentials { secret: Some(secret), ..ClusterCredentials::default() };
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let start = world.editor.start_number().await.unwrap();
        let config = Config { listen, cluster_credentials: membership, threads: 1, ..Config::default() };
        let other = PeerServer::start(world.cluster_view.clone(), start.0, config).await.unwrap();
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = door.local_addr().unwrap();
        let (knocked, mut knocks) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = door.accept().await {
                let _ = handshake::accept(&mut Stream::Tcp(stream), &mut DenyAll, "test").await;
                knocked.send(()).unwrap();
            }
        });
        let [first, second] = [&world.peer, &other].map(|peer| peer.addresses()[0].to_string());
        let cluster = Cluster::connect(&format!("mortar://{first},{closed},{second}/main")).await.unwrap();
        let mut events = cluster.events().unwrap();
        assert!(matches!(events.next().await, Some(Event::Connected { peer, .. }) if peer == first));
        world.peer.shutdown().await.unwrap();
        assert!(matches!(events.next().await, Some(Event::Disconnected { .. })));
        knocks.recv().await.unwrap();
        let next = events.next().await;
        assert!(matches!(&next, Some(Event::Connected { peer, .. }) if *peer == second), "{next:?}");
        // When none is left that does, it is told so.
        other.shutdown().await.unwrap();
        assert!(matches!(events.next().await, Some(Event::Disconnected { .. })));
        assert!(matches!(events.next().await, Some(Event::Refused { why }) if why.contains("nobody is let in")));
    });
}

#[test]
fn who_has_another_password_or_is_removed_is_told_so_and_does_nothing_more() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Write))]).await;
        let (ann, bob) = (world.cluster("ann").await.unwrap(), world.cluster("bob").await.unwrap());
        let mut events = ann.events().unwrap();
        let oid = create(&ann, "first").await.unwrap();
        assert!(ann.get(oid).await.unwrap().is_some() && bob.get(oid).await.unwrap().is_some());
        let changed = world.editor.set_password("ann", Some("another one")).await.unwrap();
        world.reach(&changed.revision).await;
        let refused = async {
            loop {
                if let Event::Refused { why } = events.next().await.expect("the client goes on") {
                    return why;
                }
            }
        };
        let why = time::timeout(Duration::from_secs(20), refused).await.expect("it is told");
        assert_eq!(why, "user or password is wrong");
        // Neither what it has a copy of, nor what it would have to ask for, in none of the ways that there are.
        denied(ann.get(oid).await);
        denied(ann.read_latest(oid).await);
        denied(ann.put(oid, Object::blob("changed".into())).await);
        denied(create(&ann, "second").await);
        let begun = ann.begin(IsolationLevel::Optimistic);
        denied(begun.commit().await);
        denied(world.client("ann", "right one").await);
        assert!(world.client("ann", "another one").await.is_ok());
        // Others are not concerned, until they are.
        assert!(bob.read_latest(oid).await.unwrap().is_some());
        world.grant("bob", None).await;
        let removed = world.editor.remove_user("bob").await.unwrap();
        world.reach(&removed.revision).await;
        denied(bob.read_latest(oid).await);
        denied(create(&bob, "third").await);
    });
}

#[test]
fn who_leaves_a_group_leaves_what_it_was_granted() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Read))]).await;
        let editor = &world.editor;
        editor.create_group("staff").await.unwrap();
        editor.grant("main", Grantee::Group("staff"), Some(Permission::Write)).await.unwrap();
        let joined = editor.set_member("staff", "ann", true).await.unwrap();
        world.reach(&joined.revision).await;
        let ann = world.cluster("ann").await.unwrap();
        let oid = create(&ann, "first").await.unwrap();
        let left = editor.set_member("staff", "ann", false).await.unwrap();
        world.reach(&left.revision).await;
        denied(ann.put(oid, Object::blob("changed".into())).await);
        denied(create(&ann, "second").await);
        assert!(ann.read_latest(oid).await.unwrap().is_some(), "reading is its own");
        world.grant("ann", None).await;
        denied(ann.read_latest(oid).await);
    });
}

#[test]
fn what_the_catalogue_says_counts_for_connections_that_there_are() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write))]).await;
        let ann = world.cluster("ann").await.unwrap();
        let oid = create(&ann, "first").await.unwrap();
        world.grant("ann", Some(Permission::Read)).await;
        denied(ann.put(oid, Object::blob("changed".into())).await);
        denied(create(&ann, "second").await);
        assert!(ann.read_latest(oid).await.unwrap().is_some());
        world.grant("ann", Some(Permission::Write)).await;
        ann.put(oid, Object::blob("changed".into())).await.unwrap();
        let disabled = world.editor.set_disabled("ann", true).await.unwrap();
        world.reach(&disabled.revision).await;
        denied(ann.read_latest(oid).await);
        let enabled = world.editor.set_disabled("ann", false).await.unwrap();
        world.reach(&enabled.revision).await;
        // It finds its way back by itself.
        let back = async {
            while ann.read_latest(oid).await.is_err() {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        time::timeout(Duration::from_secs(30), back).await.unwrap();
    });
}

#[test]
fn the_first_user_closes_the_doors_and_processes_with_the_secret_stay() {
    run(async {
        let (world, _) = World::without_users().await;
        let anyone = Cluster::connect(&World::url(world.peer.addresses())).await.unwrap();
        let oid = create(&anyone, "first").await.unwrap();
        world.add("root", None).await;
        assert!(denied(anyone.read_latest(oid).await).contains("users"));
        let root = world.cluster("root").await.unwrap();
        assert_eq!(root.get(oid).await.unwrap().unwrap().data, "first");
        create(&root, "second").await.unwrap();
        assert!(world.editor.set_member(ADMINISTRATORS, "root", false).await.is_err());
    });
}

// ---------------------------------------------------------------------------------------------- TLS

/// An authority, and the files of those that it has certified.
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
fn over_tls_processes_and_users_are_known_by_certificates_and_passwords_still_do() {
    run(async {
        let authority = Authority::new();
        let world = World::start(&|| authority.config("tls:127.0.0.1:0")).await;
        world.add("root", None).await;
        world.add("ann", Some(Permission::Read)).await;
        let connect = async |tls: Option<tls::Client>, credentials: Option<(&str, &str)>| {
            let mut options = ConnectOptions::default();
            options.tls = tls;
            options.credentials =
                credentials.map(|(user, password)| Credentials { user: user.into(), password: password.into() });
            Client::connect_with(&World::url(world.peer.addresses()), options).await
        };
        let believes = || Some(authority.client(None));
        assert!(connect(Some(authority.client(Some(authority.issue("ann")))), None).await.is_ok());
        assert!(connect(believes(), Some(("ann", "right one"))).await.is_ok());
        // Only who has come by a certificate knows that nobody needs a password, at peer servers and at the meta-server.
        let forget = || Action::SetPassword(SetPassword { user: "root".to_owned(), hash: None });
        let root = connect(believes(), Some(("root", "right one"))).await.unwrap();
        let refused = root.administer(forget()).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Invalid && refused.message().contains("certificate"), "{refused}");
        let root = connect(Some(authority.client(Some(authority.issue("root")))), None).await.unwrap();
        root.administer(forget()).await.unwrap();
        world.editor.set_password("root", Some("right one")).await.unwrap();
        let mut options = ConnectOptions::default();
        options.tls = Some(authority.client(Some(authority.issue("root"))));
        let at_meta = Client::connect_with(&World::url(world.meta.addresses()), options).await.unwrap();
        at_meta.administer(forget()).await.unwrap();
        denied(connect(believes(), Some(("ann", "wrong"))).await);
        denied(connect(believes(), None).await);
        denied(connect(Some(authority.client(Some(authority.issue("nobody")))), None).await);
        // Of another authority: neither believes the other.
        let other = Authority::new();
        assert!(denied(connect(Some(other.client(None)), Some(("ann", "right one"))).await).contains("authority"));
        let both = ClientFiles { ca: authority.ca(), identity: Some(other.issue("ann")), name: None };
        denied(connect(Some(tls::Client::load(both).unwrap()), None).await);
        // TLS against plain, and plain against TLS.
        let plain = World::url(world.peer.addresses()).replace("mortars://", "mortar://");
        let refused = Client::connect(&plain).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unsupported && refused.message().contains("mortars://"), "{refused}");
        let (unsafe_world, _) = World::without_users().await;
        let url = World::url(unsafe_world.peer.addresses()).replace("mortar://", "mortars://");
        let mut options = ConnectOptions::default();
        options.tls = believes();
        let refused = Client::connect_with(&url, options).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unsupported && refused.message().contains("mortar://"), "{refused}");
    });
}

#[test]
fn listening_beyond_loopback_takes_tls_and_users_or_a_person_who_says_so() {
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
        // A store of its own has no users.
        let config = authority.config("tls:0.0.0.0:0");
        let alone = Brick::start(Store::in_memory(Options::default()).unwrap(), config).await.unwrap_err();
        assert_eq!(alone.kind(), ErrorKind::Denied, "{alone}");
    });
}
