use model::Timestamp;

use super::*;

fn space_status(policy: FailurePolicy, bricks: &[(u32, bool, &[u32])]) -> SpaceStatus {
    let brick = |(brick, away, nodes): &(u32, bool, &[u32])| BrickStatus {
        brick: *brick,
        address: format!("db{brick}:6680"),
        unreachable_since: away.then(|| Timestamp::from_millis(1_000)),
        nodes: nodes.iter().map(|node| (NodeId(*node), 5)).collect(),
    };
    SpaceStatus { space: "main".to_owned(), policy, bricks: bricks.iter().map(brick).collect(), schema: 1 }
}

fn brick(event: &Event) -> (bool, u32, usize) {
    match event {
        Event::BrickFailed(brick) => (false, brick.brick, brick.nodes.len()),
        Event::BrickRecovered(brick) => (true, brick.brick, brick.nodes.len()),
        other => panic!("{other:?}"),
    }
}

const ALL_REACHABLE: [(u32, bool, &[u32]); 2] = [(1, false, &[1, 3]), (2, false, &[2, 4])];
const ONE_UNREACHABLE: [(u32, bool, &[u32]); 2] = [(1, false, &[1, 3]), (2, true, &[2, 4])];

#[test]
fn who_begins_to_watch_hears_what_is_not_well() {
    assert_eq!(events_between(None, &space_status(FailurePolicy::FailStop, &ALL_REACHABLE)), []);
    let events = events_between(None, &space_status(FailurePolicy::FailStop, &ONE_UNREACHABLE));
    assert_eq!(brick(&events[0]), (false, 2, 2));
    assert!(matches!(&events[1], Event::Stopped { why } if why.contains("brick 2")), "{events:?}");
    assert_eq!(events_between(None, &space_status(FailurePolicy::Continue, &ONE_UNREACHABLE)).len(), 1);
}

#[test]
fn what_has_happened_follows_from_how_things_were_and_are() {
    let (well, away) = (
        space_status(FailurePolicy::FailStop, &ALL_REACHABLE),
        space_status(FailurePolicy::FailStop, &ONE_UNREACHABLE),
    );
    assert_eq!(events_between(Some(&away), &away), []);
    let events = events_between(Some(&away), &well);
    assert_eq!((brick(&events[0]), &events[1..]), ((true, 2, 2), &[Event::Resumed][..]));
    let goes_on = space_status(FailurePolicy::Continue, &ONE_UNREACHABLE);
    assert_eq!(events_between(Some(&away), &goes_on), [Event::PolicyChanged(FailurePolicy::Continue), Event::Resumed]);
    let moved = space_status(FailurePolicy::Continue, &[(1, false, &[1, 2, 3, 4])]);
    let events = events_between(Some(&goes_on), &moved);
    assert_eq!(brick(&events[0]), (true, 2, 0));
    let at = |node| Event::NodeMoved { node: NodeId(node), brick: 1, epoch: 5 };
    assert_eq!(events[1..], [at(2), at(4)]);
    assert_eq!(events_between(Some(&moved), &SpaceStatus { schema: 2, ..moved.clone() }), [Event::SchemaChanged]);
}

#[test]
fn who_is_not_let_in_any_more_is_told_once_and_so_is_who_begins_then() {
    let mut watched = SpaceMonitor::default();
    let (_, mut coming) = watched.subscribe();
    watched.on_refused("say which you are");
    watched.on_refused("say which you are");
    let refused = Event::Refused { why: "say which you are".to_owned() };
    assert_eq!(coming.try_recv(), Ok(refused.clone()));
    assert!(coming.try_recv().is_err());
    assert_eq!(Vec::from(watched.subscribe().0), [refused]);
    watched.on_connected("one".into());
    assert!(watched.subscribe().0.is_empty(), "it is let in again");
}

#[tokio::test]
async fn who_goes_on_with_another_peer_server_is_told_anew_what_is_so() {
    let mut watched = SpaceMonitor::default();
    let (first, mut coming) = watched.subscribe();
    assert!(first.is_empty());
    let (well, away) = (
        space_status(FailurePolicy::FailStop, &ALL_REACHABLE),
        space_status(FailurePolicy::FailStop, &ONE_UNREACHABLE),
    );
    watched.on_connected("one".into());
    watched.update(well.clone());
    watched.on_disconnected("it has ended");
    assert!(watched.check().is_ok());
    watched.on_connected("two".into());
    watched.update(away.clone());
    assert_eq!(watched.check().unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(watched.unreachable_nodes(), [NodeId(2), NodeId(4)].into());
    let mut heard = Vec::new();
    while let Ok(event) = coming.try_recv() {
        heard.push(event);
    }
    assert_eq!(heard[0], Event::Connected { peer: "one".to_owned(), status: well });
    assert_eq!(heard[1], Event::Disconnected { peer: "one".to_owned(), why: "it has ended".to_owned() });
    assert_eq!(heard[2], Event::Connected { peer: "two".to_owned(), status: away });
    assert_eq!(brick(&heard[3]), (false, 2, 2));
    assert!(matches!(heard[4], Event::Stopped { .. }));
    // Whoever begins now hears the same.
    assert_eq!(Vec::from(watched.subscribe().0), heard[2..]);
    watched.close();
    assert!(matches!(coming.recv().await, Err(RecvError::Closed)));
}
