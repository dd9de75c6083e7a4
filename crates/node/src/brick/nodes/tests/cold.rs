//! Reads that wait for the disk keep nothing else waiting. The thread of each test is the I/O thread: it has the only runtime.

use protocol::ident::HolderId;
use protocol::page_cache::{FetchId, FetchReply};
use protocol::tree::{Down, Up};

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
            test.ended().await;
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
    async fn fetched(&mut self) -> PageId {
        match next(&mut self.messages).await {
            Message::Down { message: Down::Fetched { page, reply: FetchReply::Page(_), .. }, .. } => page,
            other => panic!("{other:?}"),
        }
    }

    /// The transaction whose outcome arrives next.
    async fn ended(&mut self) -> TxnId {
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
    assert_eq!((test.fetched().await, test.fetched().await), (WARM, ELSEWHERE));
    test.resume_disk();
    assert_eq!(test.fetched().await, COLD);
}

#[tokio::test]
async fn transactions_on_warm_pages_end_while_one_reads_a_cold_page() {
    let mut test = ColdTest::new().await;
    let cold = test.commit(COLD);
    let (warm, elsewhere) = (test.commit(WARM), test.commit(ELSEWHERE));
    assert_eq!((test.ended().await, test.ended().await), (warm, elsewhere));
    test.resume_disk();
    assert_eq!(test.ended().await, cold);
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
    assert_eq!(test.fetched().await, ELSEWHERE);
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
    assert_eq!(test.fetched().await, COLD);
    test.resume_disk();
    for _ in 1..fetches {
        assert_eq!(test.fetched().await, COLD);
    }
}
