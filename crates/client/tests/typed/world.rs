//! A cluster in this process, with a catalogue in memory.

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use meta::catalog::{CatalogEditor, Parameters, SpaceOptions, Storage};
use meta::{Embedded, MetaStore};
use node::cluster_view::ClusterView;
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use store::{Options, Store};

pub(crate) struct World {
    bricks: Vec<Brick>,
    peer: PeerServer,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

impl World {
    /// Starts this many bricks and a peer server, and makes a space with four logical nodes.
    pub(crate) async fn start(bricks: u32) -> Self {
        let level =
            std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::ERROR);
        let log = tracing_subscriber::fmt().with_max_level(level);
        // The first test of a process sets it; for the others this fails.
        let _ = log.with_test_writer().try_init();
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(catalogue.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let realm = ClusterView::follow(catalogue).await.unwrap();
        let session = editor.store().open_session(Duration::from_secs(3600)).await.unwrap().id;
        let mut started = Vec::new();
        for number in 1..=bricks {
            let store = Store::in_memory(Options::default()).unwrap();
            let brick = Brick::start_in(realm.clone(), BrickId(number), store, config()).await.unwrap();
            let address = brick.addresses()[0].to_string();
            let id = editor.add_brick(&[address], Storage::Memory).await.unwrap().value.id;
            assert_eq!(id.0, number);
            editor.announce_brick(id, editor.start_number().await.unwrap(), session).await.unwrap();
            started.push(brick);
        }
        let options = SpaceOptions { nodes: Some(4), ..SpaceOptions::default() };
        realm.create_space("main", options).await.unwrap();
        let start = editor.start_number().await.unwrap().0;
        let peer = PeerServer::start(realm.clone(), start, config()).await.unwrap();
        Self { bricks: started, peer }
    }

    pub(crate) fn url(&self) -> String {
        format!("mortar://{}/main", self.peer.addresses()[0])
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn end(self) {
        self.peer.shutdown().await.unwrap();
        for brick in self.bricks {
            brick.shutdown().await.unwrap();
        }
    }
}
