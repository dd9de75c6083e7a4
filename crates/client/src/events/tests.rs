use model::Timestamp;

use super::*;
use model::planted_bug::is_noticed;

fn space_status(policy: FailurePolicy, bricks: &[(u32, bool, &[u32])]) -> SpaceStatus {
    let brick = |(brick, away, nodes): &(u32, bool, &[u32])| BrickStatus {
        brick: *brick,
        address: format!("db{brick}:6680"),
        unreachable_since: away.then(|| Timestamp::from_millis(1_000)),
        nodes: nodes.iter().map(|node| (NodeId(*node), 5)).collect(),
        damaged: Vec::new(),
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
fn new_subscriber_gets_what_is_wrong() {
    assert_eq!(events_between(None, &space_status(FailurePolicy::FailStop, &ALL_REACHABLE)), []);
    let events = events_between(None, &space_status(FailurePolicy::FailStop, &ONE_UNREACHABLE));
    assert_eq!(brick(&events[0]), (false, 2, 2));
    assert!(matches!(&events[1], Event::Stopped { why } if why.contains("brick 2")), "{events:?}");
    assert_eq!(events_between(None, &space_status(FailurePolicy::Continue, &ONE_UNREACHABLE)).len(), 1);
}

#[test]
fn events_are_described_in_one_line() {
    let status = space_status(FailurePolicy::FailStop, &ONE_UNREACHABLE);
    let connected = Event::Connected { peer: "db0:6680".to_owned(), status: status.clone() }.to_string();
    assert!(connected.starts_with("connected to peer server db0:6680: 1 of 2 bricks can be reached"), "{connected}");
    let failed = events_between(None, &status)[0].to_string();
    assert_eq!(failed, "brick 2 (db2:6680) has failed, with logical nodes 2 4");
    let moved = Event::NodeMoved { node: NodeId(10), brick: 2, epoch: 5 };
    assert_eq!(moved.to_string(), "logical node a is at brick 2 since epoch 5");
}

#[test]
fn events_follow_from_two_statuses() {
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
    let mut damaged = moved.clone();
    let (node, number) = (damaged.bricks[0].nodes[0].0, damaged.bricks[0].brick);
    damaged.bricks[0].damaged = vec![(node, "a row".into())];
    let expected = Event::NodeDamaged { node, brick: number, damage: "a row".to_owned() };
    assert_eq!(events_between(Some(&moved), &damaged), std::slice::from_ref(&expected));
    assert!(events_between(None, &damaged).contains(&expected), "a new subscriber learns of it");
    assert_eq!(events_between(Some(&damaged), &damaged), []);
    assert_eq!(events_between(Some(&damaged), &moved), [Event::NodeRecovered { node, brick: number }]);
    let mut away = moved.clone();
    away.bricks[0].unreachable_since = Some(Timestamp::from_millis(1_000));
    let events = events_between(Some(&damaged), &away);
    assert!(!events.iter().any(|event| matches!(event, Event::NodeRecovered { .. })), "{events:?}");
    assert_eq!(events_between(Some(&moved), &SpaceStatus { schema: 2, ..moved.clone() }), [Event::SchemaChanged]);
}

#[test]
fn refusal_is_an_event_once_and_for_each_new_subscriber() {
    let mut monitor = SpaceMonitor::default();
    monitor.on_refused("log in");
    monitor.on_refused("log in");
    let refused = Event::Refused { why: "log in".to_owned() };
    assert_eq!(monitor.events().collect::<Vec<_>>(), std::slice::from_ref(&refused));
    assert_eq!(Vec::from(monitor.current_events()), [refused]);
    monitor.on_connected("one".into());
    assert!(monitor.current_events().is_empty(), "the client is admitted again");
}

#[test]
fn no_change_is_missed_between_two_peer_servers() {
    next_peer_server_tells_what_has_changed_since_the_last_one();
    assert!(is_noticed(Bug::EventsLostOverReconnect, next_peer_server_tells_what_has_changed_since_the_last_one));
}

fn next_peer_server_tells_what_has_changed_since_the_last_one() {
    let mut monitor = SpaceMonitor::default();
    assert!(monitor.current_events().is_empty());
    let (well, away) = (
        space_status(FailurePolicy::FailStop, &ALL_REACHABLE),
        space_status(FailurePolicy::FailStop, &ONE_UNREACHABLE),
    );
    monitor.on_connected("one".into());
    monitor.update(well.clone());
    monitor.on_disconnected("it has ended");
    assert!(monitor.check().is_ok());
    monitor.on_connected("two".into());
    monitor.update(away.clone());
    assert_eq!(monitor.check().unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(monitor.unavailable_nodes(), [NodeId(2), NodeId(4)].into());
    let events: Vec<Event> = monitor.events().collect();
    assert_eq!(events[0], Event::Connected { peer: "one".to_owned(), status: well.clone() });
    assert_eq!(events[1], Event::Disconnected { peer: "one".to_owned(), why: "it has ended".to_owned() });
    assert_eq!(events[2], Event::Connected { peer: "two".to_owned(), status: away });
    assert_eq!(brick(&events[3]), (false, 2, 2));
    assert!(matches!(events[4], Event::Stopped { .. }));
    // A new subscriber gets the same.
    assert_eq!(Vec::from(monitor.current_events()), events[2..]);
    // A brick that recovers while no peer server is connected has recovered for the subscribers, too.
    monitor.on_disconnected("it has ended");
    monitor.on_connected("one".into());
    monitor.update(well);
    let events: Vec<Event> = monitor.events().collect();
    assert_eq!((brick(&events[2]), &events[3]), ((true, 2, 2), &Event::Resumed));
}
