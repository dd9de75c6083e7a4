use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time;

use super::*;

struct IgnoreAll;

impl BrickLinkHandler for IgnoreAll {
    fn on_connected(&self, _: BrickId) {}

    fn handle_message(&self, _: BrickId, _: Message) -> Result<()> {
        Ok(())
    }

    fn on_disconnected(&self, _: BrickId) {}
}

#[tokio::test]
async fn brick_that_has_left_the_map_is_not_connected_to_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let (links, handler) = (BrickLinks::new(ClusterCredentials::default(), WitnessTable::new()), Arc::new(IgnoreAll));
    links.set_bricks(&[(BrickId(1), address)].into(), &handler);
    let (mut first, _) = listener.accept().await.unwrap();
    links.set_bricks(&BTreeMap::new(), &handler);
    // The connection ends without an answer to its introduction.
    assert!(first.read(&mut [0; 1]).await.is_ok());
    drop(first);
    let again = time::timeout(20 * CONNECT_POLICY.min_backoff, listener.accept()).await;
    assert!(again.is_err());
}

#[test]
fn what_an_opening_has_forced_is_kept_until_it_is_superseded() {
    let opening = Opening { number: 3, nonce: 7 };
    let belief = LinkBelief::new(Some(ForcedPosition { opening, position: 5 }));
    belief.forced.fetch_max(9, Ordering::Relaxed);
    assert_eq!(belief.forced(), Some(ForcedPosition { opening, position: 9 }));
    assert!(belief.believe().is_some());
    belief.supersede();
    assert!(belief.believe().is_none());
}
