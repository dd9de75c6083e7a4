//! A catalogue, a machine with connections to bricks, and the messages of its clients.

use super::*;

/// A catalogue with two bricks, two spaces, and users of the first space; the same after all permissions were revoked; that after a
/// class was defined; and the first one with a read-only space.
pub(super) struct Fixture {
    pub(super) catalog: Arc<Catalog>,
    pub(super) revoked: Arc<Catalog>,
    pub(super) extended: Arc<Catalog>,
    /// The class has got a field.
    pub(super) widened: Arc<Catalog>,
    /// The first space is read-only.
    pub(super) read_only: Arc<Catalog>,
    pub(super) main: Arc<SpaceView>,
    pub(super) other: Arc<SpaceView>,
    pub(super) placement: PlacementSnapshot,
}

pub(super) static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(store.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let view = ClusterView::follow(store).await.unwrap();
        for port in 1..=2 {
            let address = [format!("127.0.0.1:{port}")];
            let brick = editor.add_brick(&address, Storage::Durable).await.unwrap().value.id;
            let session = editor.store().open_session(Duration::from_secs(60)).await.unwrap().id;
            editor.announce_brick(brick, editor.start_number().await.unwrap(), session).await.unwrap();
        }
        let options = || SpaceOptions { nodes: Some(2), policy: FailurePolicy::FailStop, ..SpaceOptions::default() };
        let main = view.create_space("main", options()).await.unwrap();
        let other = view.create_space("other", options()).await.unwrap();
        editor.create_user("root", Some("a password of root"), &[]).await.unwrap();
        for (name, permission) in [("reader", Permission::Read), ("writer", Permission::Write)] {
            editor.create_user(name, None, &[]).await.unwrap();
            editor.grant("main", Grantee::User(name), Some(permission)).await.unwrap();
        }
        let granted = editor.grant("other", Grantee::User("writer"), Some(Permission::Write)).await.unwrap();
        view.wait_for_revision(granted.revision).await.unwrap();
        let catalog = view.catalog().unwrap();
        let frozen = |read_only| SpaceChange { read_only: Some(read_only), ..SpaceChange::default() };
        let set = editor.change_space("main", frozen(true)).await.unwrap();
        view.wait_for_revision(set.revision).await.unwrap();
        let read_only = view.catalog().unwrap();
        editor.change_space("main", frozen(false)).await.unwrap();
        editor.grant("main", Grantee::User("reader"), None).await.unwrap();
        let revoked = editor.grant("main", Grantee::User("writer"), None).await.unwrap();
        view.wait_for_revision(revoked.revision).await.unwrap();
        let revoked = view.catalog().unwrap();
        let class = ClassDefinition { name: "Person".to_owned(), parent: None, fields: vec![] };
        let defined = editor.define("main", &[class]).await.unwrap();
        view.wait_for_revision(defined.revision).await.unwrap();
        let extended = view.catalog().unwrap();
        let age =
            FieldDefinition { name: "age".to_owned(), field_type: FieldType::Int64, optional: true, default: None };
        let defined = editor.evolve("main", "Person", &[EvolutionStep::Add(age)]).await.unwrap();
        view.wait_for_revision(defined.revision).await.unwrap();
        let placement = PlacementSnapshot::clone(&view.placement.snapshot());
        Fixture { catalog, revoked, extended, widened: view.catalog().unwrap(), read_only, main, other, placement }
    })
});

pub(super) type Driver = PeerDriver<u8, u64, u32>;
pub(super) type Outputs = Vec<Output<u8, u64, u32>>;

/// A peer server with connections to both bricks.
pub(super) fn driver() -> Driver {
    let settings = PeerSettings {
        process: PROCESS,
        session_bits: BITS,
        cache_bytes: 1 << 20,
        backlog_bytes: None,
        helpers: Helpers::None,
    };
    let mut driver = Driver::new(settings, NOW);
    driver.set_catalog(&FIXTURE.catalog);
    for brick in FIXTURE.placement.bricks.keys() {
        driver.brick_connected(*brick, NOW);
    }
    driver.map(Arc::new(FIXTURE.placement.clone()), NOW);
    driver.update_statuses(|_| true, NOW);
    driver.outputs().for_each(drop);
    driver
}

pub(super) fn client_in(address: u8, space: &Arc<SpaceView>, user: &str, number: Option<u64>) -> PeerClient<u8> {
    let principal = Principal::of_user(FIXTURE.catalog.user(user).unwrap());
    PeerClient::new(address, space.clone(), principal, number.map(ClientId))
}

/// A client with a number.
pub(super) fn client_with_number(address: u8, user: &str, number: u64) -> PeerClient<u8> {
    client_in(address, &FIXTURE.main, user, Some(number))
}

/// A client with number 7.
pub(super) fn client(address: u8, user: &str) -> PeerClient<u8> {
    client_with_number(address, user, 7)
}

pub(super) fn node() -> NodeId {
    FIXTURE.main.nodes[0]
}

pub(super) fn brick_of(node: NodeId) -> BrickId {
    FIXTURE.placement.nodes[&node].brick
}

pub(super) fn page() -> PageId {
    PageId { space: FIXTURE.main.id, node: node(), number: 7 }
}

pub(super) fn oid() -> Oid {
    Oid::new(ClassId::NONE, page(), 1)
}

pub(super) fn holder(client: u64) -> HolderId {
    HolderId(client << BITS)
}

pub(super) fn txn(client: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(NOW), client: ClientId(client) }
}

pub(super) fn renew(client: u64, replaces: Option<HolderId>) -> ClientMessage<u64> {
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    let message = Up::Renew { asked: NOW, wanted_ms, open: true, sync: 1, subscribe, height, replaces };
    ClientMessage::Up { node: node(), holder: holder(client), message }
}

/// The client opens its session with this number, after the one before was closed.
pub(super) fn reopen(client: u64, number: u64) -> ClientMessage<u64> {
    match renew(client, Some(holder(client))) {
        ClientMessage::Up { node, holder, message } => {
            ClientMessage::Up { node, holder: HolderId(holder.0 + number), message }
        }
        other => other,
    }
}

pub(super) fn fetch(client: u64, node: NodeId, page: PageId) -> ClientMessage<u64> {
    ClientMessage::Up { node, holder: holder(client), message: Up::Fetch { page, fetch: FetchId(1), have: None } }
}

pub(super) fn writes() -> Writes<u64> {
    [(oid(), ObjectState::Value(5))].into()
}

pub(super) fn write(client: u64) -> ClientMessage<u64> {
    let message = Up::Write { write: txn(client), writes: writes() };
    ClientMessage::Up { node: node(), holder: holder(client), message }
}

pub(super) fn commit(client: u64, part: Part<u64>) -> ClientMessage<u64> {
    let call = Call::Commit { parts: [(node(), part)].into(), creates: false };
    ClientMessage::Call { txn: txn(client), call }
}

pub(super) fn writing() -> Part<u64> {
    Part { writes: writes(), ..Part::default() }
}

/// Gives the machine a message that it takes, and returns what it wants.
pub(super) fn send(driver: &mut Driver, client: &mut PeerClient<u8>, message: ClientMessage<u64>) -> Outputs {
    driver.client_message(client, message, NOW).unwrap();
    driver.outputs().collect()
}

/// The kind of error that ends the connection of a client which says this.
pub(super) fn refusal_kind(driver: &mut Driver, client: &mut PeerClient<u8>, message: ClientMessage<u64>) -> ErrorKind {
    driver.client_message(client, message, NOW).expect_err("it ends the connection").kind()
}

/// Why the transaction of a client is not done, if that is so.
pub(super) fn deferral_kind(outputs: &Outputs) -> Option<ErrorKind> {
    outputs.iter().find_map(|output| match output {
        Output::Deferred { kind, .. } => Some(*kind),
        _ => None,
    })
}

pub(super) fn asks(outputs: &Outputs) -> Vec<BrickId> {
    let ask = |output: &Output<u8, u64, u32>| match output {
        Output::Ask { to, .. } => Some(to.brick),
        _ => None,
    };
    outputs.iter().filter_map(ask).collect()
}

/// The sessions that are opened with bricks.
pub(super) fn opened_sessions(outputs: &Outputs) -> Vec<(BrickId, HolderId)> {
    let open = |output: &Output<u8, u64, u32>| match output {
        Output::Up { to, holder, message: Up::Renew { open: true, .. }, .. } => Some((to.brick, *holder)),
        _ => None,
    };
    outputs.iter().filter_map(open).collect()
}

/// Answers renewals and fetches as bricks do, until there are none; returns the other outputs.
pub(super) fn answer_as_bricks(driver: &mut Driver, outputs: Outputs, now: Ms) -> Outputs {
    let (version, timestamp) = (Version { moves: 0, position: 3 }, HlcTimestamp::at(5));
    let image = || PageImage { version, timestamp, objects: [(1, 5)].into() };
    answer_fetches(driver, outputs, now, || FetchReply::Page(image()))
}

/// Answers as bricks whose answer to a fetch is `reply`.
pub(super) fn answer_fetches(
    driver: &mut Driver,
    mut outputs: Outputs,
    now: Ms,
    mut reply: impl FnMut() -> FetchReply<u64>,
) -> Outputs {
    let mut rest = Vec::new();
    while !outputs.is_empty() {
        for output in outputs {
            let (to, node, holder, message) = match output {
                Output::Up { to, node, holder, message: Up::Renew { asked, sync, .. } } => {
                    (to, node, holder, Down::Leased { asked, lease_ms: 10_000, sync })
                }
                Output::Up { to, node, holder, message: Up::Fetch { page, fetch, .. } } => {
                    (to, node, holder, Down::Fetched { page, fetch, reply: reply() })
                }
                other => {
                    rest.push(other);
                    continue;
                }
            };
            driver.brick_message(to.brick, BrickMessage::Down { node, holder, message }, now).unwrap();
        }
        outputs = driver.outputs().collect();
    }
    rest
}

/// A driver with a client whose session is open.
pub(super) fn driver_with_client(client: &mut PeerClient<u8>, number: u64) -> Driver {
    let mut driver = driver();
    let outputs = send(&mut driver, client, renew(number, None));
    answer_as_bricks(&mut driver, outputs, NOW);
    driver
}

/// The placement after the first logical node has moved to the other brick.
pub(super) fn moved_placement() -> Arc<PlacementSnapshot> {
    let mut map = FIXTURE.placement.clone();
    let other = map.bricks.keys().copied().find(|brick| *brick != brick_of(node())).unwrap();
    let place = map.nodes.get_mut(&node()).unwrap();
    *place = NodePlacement { brick: other, epoch: place.epoch + 1, moves: place.moves + 1 };
    Arc::new(map)
}

/// The part of a transaction that binds a name.
pub(super) fn naming(collection: Oid, target: Oid) -> Part<u64> {
    let entry = Entry { collection, key: EntryKey::name("name").unwrap() };
    Part { entries: [(entry, Some(target))].into(), ..Part::default() }
}
