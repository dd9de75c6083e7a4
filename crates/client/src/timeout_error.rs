//! Error messages of calls that have not finished in time. They name the brick that the client has waited for, according to the
//! status that the peer server has sent.

use std::time::Duration;

use model::{Error, ErrorKind, NodeId, Oid};
use wire::cluster::{BrickStatus, SpaceStatus};

/// Why nothing has come from these logical nodes for `timeout`; without nodes, from the peer server.
pub(super) fn timeout_message(
    status: Option<&SpaceStatus>,
    is_connected: bool,
    nodes: &[NodeId],
    timeout: Duration,
) -> String {
    if !is_connected {
        return format!("no peer server could be reached for {timeout:?}");
    }
    let Some(status) = status.filter(|_| !nodes.is_empty()) else {
        let unreachable = status.and_then(|status| unreachable_bricks(status, &[]));
        let unreachable = unreachable.map(|unreachable| format!(": {unreachable}")).unwrap_or_default();
        return format!("the peer server has not answered within {timeout:?}{unreachable}");
    };
    if let Some(unreachable) = unreachable_bricks(status, nodes) {
        return format!("{unreachable}; the client has waited {timeout:?}");
    }
    let serving: Vec<String> = serving_bricks(status, nodes).map(ToString::to_string).collect();
    match &serving[..] {
        [] => format!("no brick is known to serve the request since {timeout:?}"),
        [brick] => format!("{brick} has not answered within {timeout:?}"),
        bricks => format!("one of these has not answered within {timeout:?}: {}", bricks.join(", ")),
    }
}

/// Why no lock was granted for `timeout`: if the brick can be reached, another transaction has the lock.
pub(super) fn lock_timeout_message(
    status: Option<&SpaceStatus>,
    is_connected: bool,
    (oid, nodes): (Oid, &[NodeId]),
    timeout: Duration,
) -> String {
    if !is_connected || status.is_some_and(|status| unreachable_bricks(status, nodes).is_some()) {
        return timeout_message(status, is_connected, nodes, timeout);
    }
    let bricks = status.into_iter().flat_map(|status| serving_bricks(status, nodes));
    let at: String = bricks.map(|brick| format!(" at {brick}")).collect();
    format!(
        "no lock of {oid}{at} was granted within {timeout:?}: another transaction holds it or has waited longer, or the brick hangs"
    )
}

/// The error of a call that needs one of these logical nodes, if its brick cannot serve it because its rows are damaged.
pub(super) fn damage_error(status: &SpaceStatus, nodes: &[NodeId]) -> Option<Error> {
    let (brick, node, damage) = status.damaged().find(|(_, node, _)| nodes.contains(node))?;
    Some(Error::new(ErrorKind::Corrupt, format!("logical node {:x} cannot be served by {brick}: {damage}", node.0)))
}

/// The bricks that cannot be reached, and since when: those that serve some of these logical nodes, or all if there are none.
pub(super) fn unreachable_bricks(status: &SpaceStatus, nodes: &[NodeId]) -> Option<String> {
    let unreachable = serving_bricks(status, nodes).filter(|brick| brick.unreachable_since.is_some());
    let unreachable: Vec<String> = unreachable.map(ToString::to_string).collect();
    (!unreachable.is_empty()).then(|| unreachable.join(", "))
}

fn serving_bricks<'a>(status: &'a SpaceStatus, nodes: &'a [NodeId]) -> impl Iterator<Item = &'a BrickStatus> {
    let serves = |brick: &&BrickStatus| brick.nodes.iter().any(|(node, _)| nodes.contains(node));
    status.bricks.iter().filter(move |brick| nodes.is_empty() || serves(brick))
}

#[cfg(test)]
mod tests {
    use model::{FailurePolicy, Timestamp};

    use super::*;

    fn space_status() -> SpaceStatus {
        let brick = |brick, away: bool, node| BrickStatus {
            brick,
            address: format!("db{brick}:6680"),
            unreachable_since: away.then(|| Timestamp::from_micros(1_700_000_000_000_000)),
            nodes: vec![(NodeId(node), 1)],
            damaged: Vec::new(),
        };
        let bricks = vec![brick(1, false, 1), brick(2, true, 2), brick(3, false, 3)];
        SpaceStatus { space: "main".to_owned(), policy: FailurePolicy::Continue, bricks, schema: 0 }
    }

    #[test]
    fn message_names_the_lock_unless_its_brick_is_unreachable() {
        let (status, timeout) = (space_status(), Duration::from_secs(3));
        let message = |node: u32| {
            let page = model::PageId { space: model::SpaceId(1), node: NodeId(node), number: 7 };
            lock_timeout_message(
                Some(&status),
                true,
                (Oid::new(model::ClassId::NONE, page, 1), &[NodeId(node)]),
                timeout,
            )
        };
        assert_eq!(
            message(1),
            "no lock of 1.0.1.7.1 at brick 1 (db1:6680) was granted within 3s: another transaction holds it or has waited longer, or the brick hangs"
        );
        let unreachable = "brick 2 (db2:6680) cannot be reached since 2023-11-14T22:13:20Z; the client has waited 3s";
        assert_eq!(message(2), unreachable);
    }

    #[test]
    fn error_of_a_damaged_logical_node_names_its_brick() {
        let mut status = space_status();
        assert!(damage_error(&status, &[NodeId(1)]).is_none());
        status.bricks[0].damaged = vec![(NodeId(1), "a row is damaged".into())];
        assert!(damage_error(&status, &[NodeId(2)]).is_none());
        let error = damage_error(&status, &[NodeId(2), NodeId(1)]).unwrap();
        let expected = "logical node 1 cannot be served by brick 1 (db1:6680): a row is damaged";
        assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, expected));
    }

    #[test]
    fn message_names_the_bricks_that_were_waited_for() {
        let (status, timeout) = (space_status(), Duration::from_secs(3));
        let message = |nodes: &[u32]| {
            let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
            timeout_message(Some(&status), true, &nodes, timeout)
        };
        let unreachable = "brick 2 (db2:6680) cannot be reached since 2023-11-14T22:13:20Z; the client has waited 3s";
        assert_eq!(message(&[2]), unreachable);
        assert_eq!(message(&[1, 2, 3]), unreachable, "the other bricks can be reached");
        assert_eq!(message(&[1]), "brick 1 (db1:6680) has not answered within 3s");
        assert_eq!(message(&[1, 3]), "one of these has not answered within 3s: brick 1 (db1:6680), brick 3 (db3:6680)");
        let named = "the peer server has not answered within 3s: brick 2 (db2:6680) cannot be reached since 2023-11-14T22:13:20Z";
        assert_eq!(message(&[]), named);
        assert_eq!(timeout_message(None, true, &[], timeout), "the peer server has not answered within 3s");
        assert_eq!(
            timeout_message(Some(&status), false, &[NodeId(2)], timeout),
            "no peer server could be reached for 3s"
        );
    }
}
