use model::Timestamp;

use super::*;

fn standing(policy: FailurePolicy, bricks: &[(u32, bool, &[u32])]) -> Standing {
    let brick = |(brick, away, nodes): &(u32, bool, &[u32])| BrickStanding {
        brick: *brick,
        address: format!("db{brick}:6680"),
        away_since: away.then(|| Timestamp::from_millis(1_000)),
        nodes: nodes.iter().map(|node| (NodeId(*node), 5)).collect(),
    };
    Standing { space: "main".to_owned(), policy, bricks: bricks.iter().map(brick).collect(), schema: 1 }
}

fn brick(event: &Event) -> (bool, u32, usize) {
    match event {
        Event::BrickFailed(brick) => (false, brick.brick, brick.nodes.len()),
        Event::BrickRecovered(brick) => (true, brick.brick, brick.nodes.len()),
        other => panic!("{other:?}"),
    }
}

const WELL: [(u32, bool, &[u32]); 2] = [(1, false, &[1, 3]), (2, false, &[2, 4])];
const AWAY: [(u32, bool, &[u32]); 2] = [(1, false, &[1, 3]), (2, true, &[2, 4])];

#[test]
fn who_begins_to_watch_hears_what_is_not_well() {
    assert_eq!(happened(None, &standing(FailurePolicy::FailStop, &WELL)), []);
    let events = happened(None, &standing(FailurePolicy::FailStop, &AWAY));
    assert_eq!(brick(&events[0]), (false, 2, 2));
    assert!(matches!(&events[1], Event::Stopped { why } if why.contains("brick 2")), "{events:?}");
    assert_eq!(happened(None, &standing(FailurePolicy::Continue, &AWAY)).len(), 1);
}

#[test]
fn what_has_happened_follows_from_how_things_were_and_are() {
    let (well, away) = (standing(FailurePolicy::FailStop, &WELL), standing(FailurePolicy::FailStop, &AWAY));
    assert_eq!(happened(Some(&away), &away), []);
    let events = happened(Some(&away), &well);
    assert_eq!((brick(&events[0]), &events[1..]), ((true, 2, 2), &[Event::Resumed][..]));
    let goes_on = standing(FailurePolicy::Continue, &AWAY);
    assert_eq!(happened(Some(&away), &goes_on), [Event::PolicyChanged(FailurePolicy::Continue), Event::Resumed]);
    let moved = standing(FailurePolicy::Continue, &[(1, false, &[1, 2, 3, 4])]);
    let events = happened(Some(&goes_on), &moved);
    assert_eq!(brick(&events[0]), (true, 2, 0));
    let at = |node| Event::NodeMoved { node: NodeId(node), brick: 1, epoch: 5 };
    assert_eq!(events[1..], [at(2), at(4)]);
    assert_eq!(happened(Some(&moved), &Standing { schema: 2, ..moved.clone() }), [Event::SchemaChanged]);
}

#[test]
fn who_is_not_let_in_any_more_is_told_once_and_so_is_who_begins_then() {
    let mut watched = Watched::default();
    let (_, mut coming) = watched.subscribe();
    watched.refused("say which you are");
    watched.refused("say which you are");
    let refused = Event::Refused { why: "say which you are".to_owned() };
    assert_eq!(coming.try_recv(), Ok(refused.clone()));
    assert!(coming.try_recv().is_err());
    assert_eq!(Vec::from(watched.subscribe().0), [refused]);
    watched.connected("one".into());
    assert!(watched.subscribe().0.is_empty(), "it is let in again");
}

#[tokio::test]
async fn who_goes_on_with_another_peer_server_is_told_anew_what_is_so() {
    let mut watched = Watched::default();
    let (first, mut coming) = watched.subscribe();
    assert!(first.is_empty());
    let (well, away) = (standing(FailurePolicy::FailStop, &WELL), standing(FailurePolicy::FailStop, &AWAY));
    watched.connected("one".into());
    watched.told(well.clone());
    watched.disconnected("it has ended");
    assert!(watched.check().is_ok());
    watched.connected("two".into());
    watched.told(away.clone());
    assert_eq!(watched.check().unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(watched.away(), [NodeId(2), NodeId(4)].into());
    let mut heard = Vec::new();
    while let Ok(event) = coming.try_recv() {
        heard.push(event);
    }
    assert_eq!(heard[0], Event::Connected { peer: "one".to_owned(), standing: well });
    assert_eq!(heard[1], Event::Disconnected { peer: "one".to_owned(), why: "it has ended".to_owned() });
    assert_eq!(heard[2], Event::Connected { peer: "two".to_owned(), standing: away });
    assert_eq!(brick(&heard[3]), (false, 2, 2));
    assert!(matches!(heard[4], Event::Stopped { .. }));
    // Whoever begins now hears the same.
    assert_eq!(Vec::from(watched.subscribe().0), heard[2..]);
    watched.close();
    assert!(matches!(coming.recv().await, Err(RecvError::Closed)));
}
