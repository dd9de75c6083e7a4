//! A cluster with one brick, one peer server and one meta-server, in one process.

use std::sync::Arc;
use std::time::Duration;

use client::{AdminClient, AdminOptions, Client, ConnectOptions, Credentials};
use meta::catalog::{CatalogEditor, Grantee, Permission, ServerId, SpaceOptions};
use meta::{Embedded, MetaStore, Revision};
use node::auth::{ClusterCredentials, Secret};
use node::cluster_view::ClusterView;
use node::member::{self, Member};
use node::meta::{MetaServer, RemoteMetaStore};
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use tokio::time;
use wire::handshake::Role;
use wire::transport::Address;

/// A cluster with one brick, one peer server and one meta-server, whose processes authenticate each other as `config`
/// determines.
pub(crate) struct World {
    pub(crate) editor: CatalogEditor,
    pub(crate) cluster_view: Arc<ClusterView>,
    pub(crate) meta: MetaServer,
    pub(crate) brick: Brick,
    pub(crate) peer: PeerServer,
    _member: Member,
}

impl World {
    pub(crate) async fn start(config: &dyn Fn() -> Config) -> Self {
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
        let member = Member::announce(&realm, ServerId::Brick(id), start, brick.addresses()).await.unwrap();
        realm.create_space("main", SpaceOptions { nodes: Some(1), ..SpaceOptions::default() }).await.unwrap();
        let start = editor.start_number().await.unwrap();
        let peer = PeerServer::start(realm.clone(), start.0, config()).await.unwrap();
        let world = Self { editor, cluster_view: realm, meta, brick, peer, _member: member };
        world.reach(&world.editor.set_up(&meta::catalog::Parameters::generate()).await.unwrap().revision).await;
        world
    }

    /// A cluster on loopback, with a secret.
    pub(crate) async fn without_users() -> (Self, Secret) {
        Self::without_users_with(|_| ()).await
    }

    /// Like `without_users`, with servers that `adjust` has configured.
    pub(crate) async fn without_users_with(adjust: impl Fn(&mut Config)) -> (Self, Secret) {
        let secret = Secret::generate();
        let known = secret.clone();
        let config = move || {
            let membership = ClusterCredentials { secret: Some(known.clone()), ..ClusterCredentials::default() };
            let mut config = Config {
                listen: vec!["127.0.0.1:0".parse().unwrap()],
                cluster_credentials: membership,
                threads: 1,
                ..Config::default()
            };
            adjust(&mut config);
            config
        };
        (Self::start(&config).await, secret)
    }

    /// A cluster with users: root is an administrator; the others have these permissions. All have the password `right
    /// one`.
    pub(crate) async fn with(users: &[(&str, Option<Permission>)]) -> (Self, Secret) {
        Self::with_users_and(users, |_| ()).await
    }

    pub(crate) async fn with_users_and(
        users: &[(&str, Option<Permission>)],
        adjust: impl Fn(&mut Config),
    ) -> (Self, Secret) {
        let (world, secret) = Self::without_users_with(adjust).await;
        world.add("root", None).await;
        for (name, permission) in users {
            world.add(name, *permission).await;
        }
        (world, secret)
    }

    pub(crate) async fn add(&self, name: &str, permission: Option<Permission>) {
        self.editor.create_user(name, Some("right one"), &[]).await.unwrap();
        let granted = self.editor.grant("main", Grantee::User(name), permission).await.unwrap();
        self.reach(&granted.revision).await;
    }

    pub(crate) async fn reach(&self, revision: &Revision) {
        self.cluster_view.wait_for_revision(*revision).await.unwrap();
    }

    pub(crate) async fn grant(&self, name: &str, permission: Option<Permission>) {
        let granted = self.editor.grant("main", Grantee::User(name), permission).await.unwrap();
        self.reach(&granted.revision).await;
    }

    pub(crate) fn url(of: &[Address]) -> String {
        match &of[0] {
            Address::Tls(host) => format!("mortars://{host}/main"),
            plain => format!("mortar://{plain}/main"),
        }
    }

    pub(crate) async fn client(&self, name: &str, password: &str) -> client::Result<AdminClient> {
        Self::client_at(self.peer.addresses(), name, password).await
    }

    pub(crate) async fn client_at(addresses: &[Address], name: &str, password: &str) -> client::Result<AdminClient> {
        let mut options = AdminOptions::default();
        options.retry = Duration::ZERO;
        if !(name.is_empty() && password.is_empty()) {
            options.credentials = Some(Credentials { user: name.to_owned(), password: password.to_owned() });
        }
        AdminClient::connect_with(&Self::url(addresses), options).await
    }

    pub(crate) async fn cluster(&self, name: &str) -> client::Result<Client> {
        let mut options = ConnectOptions::default();
        options.credentials = Some(Credentials { user: name.to_owned(), password: "right one".to_owned() });
        options.timeout = Duration::from_secs(20);
        Client::connect_with(&Self::url(self.peer.addresses()), options).await
    }
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { time::timeout(Duration::from_secs(120), test).await.expect("the test hangs") });
}
