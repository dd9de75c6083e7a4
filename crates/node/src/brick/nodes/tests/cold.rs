//! Reads that wait for the disk keep nothing else waiting. The thread of each test is the I/O thread: it has the only runtime.

use model::{Entry, EntryKey};
use protocol::entries::collection_guard;
use protocol::ident::HolderId;
use protocol::page_cache::{FetchId, FetchReply};
use protocol::tree::{Down, Up};
use wire::cluster::{ListEntries, LookUp, ReadContent};

use super::*;

const HOLDER: HolderId = HolderId(9);
const COLD: PageId = PageId { space: SpaceId(1), node: NODE, number: 1 };
const WARM: PageId = PageId { space: SpaceId(1), node: NODE, number: 2 };
const ELSEWHERE: PageId = PageId { space: SpaceId(1), node: OTHER, number: 3 };

fn oid(page: PageId) -> Oid {
    Oid::new(ClassId::NONE, page, 1)
}

/// A brick with an object in each page, of which one is not in memory, and whose disk does not answer.
struct ColdTest {
    nodes: Arc<Nodes>,
    from: PeerHandle,
    messages: mpsc::UnboundedReceiver<Message>,
    transactions: u64,
}

impl ColdTest {
    async fn new() -> Self {
        let nodes = nodes();
        let (from, messages) = connection();
        let mut test = Self { nodes, from, messages, transactions: 0 };
        for page in [COLD, WARM, ELSEWHERE] {
            test.commit(page);
            test.next_outcome().await;
        }
        for node in [NODE, OTHER] {
            test.renew(node).await;
        }
        test.nodes.cold_reads.simulated.evict(COLD);
        test.nodes.cold_reads.simulated.stop(true);
        test
    }

    fn send(&self, message: Message) {
        handle(&self.nodes, &self.from, message).unwrap();
    }

    fn say(&self, node: NodeId, message: Up<Object>) {
        self.send(Message::Up { node, epoch: EPOCH, holder: HOLDER, message });
    }

    async fn renew(&mut self, node: NodeId) {
        let asked = self.nodes.time.now();
        let wanted_ms = 60_000;
        let open = true;
        self.say(node, Up::Renew { asked, wanted_ms, open, sync: 1, subscribe: false, height: 1, replaces: None });
        let leased = next(&mut self.messages).await;
        assert!(matches!(leased, Message::Down { message: Down::Leased { .. }, .. }), "{leased:?}");
    }

    fn fetch(&self, page: PageId) {
        self.say(page.node, Up::Fetch { page, fetch: FetchId(page.number), have: None });
    }

    fn commit(&mut self, page: PageId) -> TxnId {
        self.transactions += 1;
        let txn = TxnId { start: HlcTimestamp::at(self.nodes.time.now()), client: ClientId(self.transactions) };
        let writes = [(oid(page), ObjectState::Value(Object::blob("new".into())))].into();
        let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
        self.send(Message::Ask { node: page.node, epoch: EPOCH, seen: HlcTimestamp::ZERO, request });
        txn
    }

    /// The page that arrives next.
    async fn next_page(&mut self) -> PageId {
        match next(&mut self.messages).await {
            Message::Down { message: Down::Fetched { page, reply: FetchReply::Page(_), .. }, .. } => page,
            other => panic!("{other:?}"),
        }
    }

    /// The transaction whose outcome arrives next.
    async fn next_outcome(&mut self) -> TxnId {
        match next(&mut self.messages).await {
            Message::Answer { answer: Answer::Ended { txn, outcome: Outcome::Committed(_), .. }, .. } => txn,
            other => panic!("{other:?}"),
        }
    }

    fn resume_disk(&self) {
        self.nodes.cold_reads.simulated.stop(false);
    }
}

#[tokio::test]
async fn warm_pages_are_sent_while_a_cold_one_is_read() {
    let mut test = ColdTest::new().await;
    for page in [COLD, WARM, ELSEWHERE] {
        test.fetch(page);
    }
    assert_eq!((test.next_page().await, test.next_page().await), (WARM, ELSEWHERE));
    test.resume_disk();
    assert_eq!(test.next_page().await, COLD);
}

#[tokio::test]
async fn transactions_on_warm_pages_end_while_one_reads_a_cold_page() {
    let mut test = ColdTest::new().await;
    let cold = test.commit(COLD);
    let (warm, elsewhere) = (test.commit(WARM), test.commit(ELSEWHERE));
    assert_eq!((test.next_outcome().await, test.next_outcome().await), (warm, elsewhere));
    test.resume_disk();
    assert_eq!(test.next_outcome().await, cold);
}

#[tokio::test]
async fn warm_object_is_read_while_a_cold_one_waits() {
    let test = ColdTest::new().await;
    let read = |page| {
        let nodes = test.nodes.clone();
        tokio::spawn(async move { nodes.read_latest_later(oid(page), |stored| stored.is_some()).await })
    };
    let cold = read(COLD);
    assert_eq!(read(WARM).await.unwrap().unwrap(), Some(true));
    assert!(!cold.is_finished());
    test.resume_disk();
    assert_eq!(cold.await.unwrap().unwrap(), Some(true));
}

#[tokio::test]
async fn range_of_a_warm_object_is_read_at_once() {
    let test = ColdTest::new().await;
    let read = |page| ReadContent { oid: oid(page), offset: 0, length: 3, expected: None };
    assert!(!test.nodes.is_range_cold(&read(WARM)));
    assert!(test.nodes.is_range_cold(&read(COLD)));
}

/// A directory at a logical node. Its entries need not lead to objects.
fn directory() -> Oid {
    oid(PageId { space: SpaceId(1), node: NODE, number: 5 })
}

fn name(number: u32) -> EntryKey {
    EntryKey::name(&format!("{number:04}")).unwrap()
}

/// A change of the names from 0 to before `count`.
fn names(nodes: &Nodes, number: u64, count: u32) -> (TxnId, Part<Object>) {
    let txn = TxnId { start: HlcTimestamp::at(nodes.time.now()), client: ClientId(number) };
    let entries = (0..count).map(|name| (Entry { collection: directory(), key: self::name(name) }, Some(oid(WARM))));
    (txn, Part { entries: entries.collect(), ..Part::default() })
}

fn list(limit: u32) -> ListEntries {
    let (after, prefix) = (None, Bytes::new());
    ListEntries { collection: directory(), after, prefix, limit, reverse: false, kinds: false, passes_damage: false }
}

#[tokio::test]
async fn few_settled_entries_in_memory_are_listed_at_once() {
    let nodes = nodes();
    let listed = |limit| nodes.list_entries_now(&list(limit)).unwrap().map(|found| found.entries.len());
    let commit = |number, count| {
        let (txn, part) = names(&nodes, number, count);
        ask(&nodes, Request::Commit { txn, part });
    };
    assert_eq!(listed(10_000), Some(0));
    commit(1, 63);
    assert_eq!((listed(10_000), listed(2), listed(0)), (Some(63), Some(2), Some(0)));
    commit(2, 65);
    assert_eq!((listed(10_000), listed(64)), (None, Some(64)), "there are more than are listed at once");
    commit(3, 3);
    let (txn, part) = names(&nodes, 4, 1);
    ask(&nodes, Request::Prepare { txn, participants: vec![NODE, NodeId(4)], part });
    assert_eq!(listed(2), None, "an entry is not settled");
    ask(&nodes, Request::Decide { txn, outcome: Outcome::Aborted });
    assert_eq!(listed(2), Some(2));
    nodes.cold_reads.simulated.evict(collection_guard(directory()).page());
    assert_eq!(listed(2), None, "it would wait for the disk");
}

#[tokio::test]
async fn short_paths_are_followed_at_once() {
    let nodes = nodes();
    let (txn, part) = names(&nodes, 1, 3);
    ask(&nodes, Request::Commit { txn, part });
    let look_up = |keys: Vec<EntryKey>| nodes.look_up_now(&LookUp { collection: directory(), keys }).unwrap();
    let is_found = |keys| look_up(keys).is_some();
    assert!(is_found(vec![name(1)]));
    // Whether the second key is in memory is not known as long as the store is asked.
    assert!(nodes.cold_reads.is_probing() && !is_found(vec![name(1), name(2)]));
    while nodes.cold_reads.is_probing() {
        assert!(is_found(vec![name(1)]));
    }
    assert!(is_found(vec![name(1), name(2)]));
    assert!(!is_found((0..17).map(name).collect()), "these are too many");
}

#[tokio::test]
async fn page_that_is_read_when_its_node_is_no_longer_served_is_not_sent() {
    let mut test = ColdTest::new().await;
    test.fetch(COLD);
    let mut map = (*test.nodes.cluster_view.placement.snapshot()).clone();
    map.nodes.remove(&NODE);
    test.nodes.cluster_view.placement.set(map);
    test.nodes.follow_map();
    assert!(test.nodes.require_served(NODE).is_err());
    // Its place in the queue is behind the cold page's, and one thread works at a time.
    test.resume_disk();
    test.nodes.cold_reads.simulated.evict(ELSEWHERE);
    test.fetch(ELSEWHERE);
    assert_eq!(test.next_page().await, ELSEWHERE);
    assert!(test.messages.try_recv().is_err());
}

#[tokio::test]
async fn connection_is_closed_when_a_cold_request_violates_the_protocol() {
    let mut test = ColdTest::new().await;
    let reads = vec![protocol::validate::Read {
        oid: oid(ELSEWHERE),
        seen: protocol::validate::ReadVersion::At(protocol::ident::Version::ZERO),
    }];
    test.nodes.cold_reads.simulated.evict(ELSEWHERE);
    let txn = TxnId { start: HlcTimestamp::at(test.nodes.time.now()), client: ClientId(77) };
    // The object is at another logical node than the one that is asked.
    let request = Request::Commit { txn, part: Part { reads: reads.into(), ..Part::default() } };
    test.send(Message::Ask { node: NODE, epoch: EPOCH, seen: HlcTimestamp::ZERO, request });
    test.resume_disk();
    let ended = time::timeout(Duration::from_secs(60), test.messages.recv()).await.expect("it stays open");
    assert!(ended.is_none(), "{ended:?}");
}

#[tokio::test]
async fn thread_reads_by_itself_when_too_many_reads_wait() {
    let mut test = ColdTest::new().await;
    // More than the threads and the queue take: this thread reads the rest, although the disk of the others does not answer.
    let fetches = 64;
    for number in 1..=fetches {
        test.say(NODE, Up::Fetch { page: COLD, fetch: FetchId(number), have: None });
    }
    assert_eq!(test.next_page().await, COLD);
    test.resume_disk();
    for _ in 1..fetches {
        assert_eq!(test.next_page().await, COLD);
    }
}
