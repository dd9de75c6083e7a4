//! What is said of what has not come in time: which brick it was waited for, as far as the peer server has told.

use std::time::Duration;

use model::{Error, ErrorKind, NodeId, Oid};
use protocol::ident::TxnId;
use wire::cluster::{BrickStatus, SpaceStatus};
use wire::convert;
use wire::proto::request::Request;

use super::core::Core;

impl Core {
    /// The error of who has waited for something of these logical nodes, or of the peer server if these are none.
    pub(super) fn timeout_error(&self, nodes: &[NodeId]) -> Error {
        let patience = self.options.timeout;
        let what = match self.lock() {
            Ok(state) => timeout_message(state.monitor.status(), state.connection.is_some(), nodes, patience),
            Err(closed) => return closed,
        };
        Error::new(ErrorKind::Unavailable, what)
    }

    /// The error of who has waited for a lock of this object.
    pub(super) fn lock_timeout_error(&self, oid: Oid) -> Error {
        let (nodes, patience) = ([oid.page().node], self.options.timeout);
        let what = match self.lock() {
            Ok(state) => {
                lock_timeout_message(state.monitor.status(), state.connection.is_some(), (oid, &nodes), patience)
            }
            Err(closed) => return closed,
        };
        Error::new(ErrorKind::Unavailable, what)
    }

    /// The error of a transaction of which it is not known whether it has happened.
    pub(super) fn unknown_outcome_error(&self, txn: TxnId) -> Error {
        let away = self.lock().ok().and_then(|state| unreachable_bricks(state.monitor.status()?, &[]));
        let away = away.map(|away| format!("; {away}")).unwrap_or_default();
        let what =
            format!("it could not be found out whether transaction {txn:?} has happened: ask again, or read{away}");
        Error::new(ErrorKind::Unknown, what)
    }

    /// The logical nodes that a request needs; none if the peer server answers it by itself.
    pub(super) fn request_nodes(&self, request: &Request) -> Vec<NodeId> {
        match request {
            Request::Query(_) => self.nodes.clone(),
            Request::Reserve(reserve) => vec![NodeId(reserve.node)],
            Request::Scan(scan) => vec![NodeId(scan.node)],
            Request::ReadObject(look) => {
                convert::oid(look.oid, "object").into_iter().map(|oid| oid.page().node).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Why nothing has come for so long.
fn timeout_message(standing: Option<&SpaceStatus>, is_connected: bool, nodes: &[NodeId], patience: Duration) -> String {
    if !is_connected {
        return format!("no peer server could be reached for {patience:?}");
    }
    let Some(standing) = standing.filter(|_| !nodes.is_empty()) else {
        return format!("the peer server has not answered within {patience:?}");
    };
    if let Some(away) = unreachable_bricks(standing, nodes) {
        return format!("{away}; it was waited for {patience:?}");
    }
    let serving: Vec<String> = serving_bricks(standing, nodes).map(ToString::to_string).collect();
    match &serving[..] {
        [] => format!("nobody has said who serves what was asked for, for {patience:?}"),
        [brick] => format!("{brick} has not answered within {patience:?}"),
        bricks => format!("one of these has not answered within {patience:?}: {}", bricks.join(", ")),
    }
}

/// Why no lock has come for so long: if nothing stands between the brick and here, somebody else has it.
fn lock_timeout_message(
    standing: Option<&SpaceStatus>,
    is_connected: bool,
    (oid, nodes): (Oid, &[NodeId]),
    patience: Duration,
) -> String {
    if !is_connected || standing.is_some_and(|standing| unreachable_bricks(standing, nodes).is_some()) {
        return timeout_message(standing, is_connected, nodes, patience);
    }
    let bricks = standing.into_iter().flat_map(|standing| serving_bricks(standing, nodes));
    let at: String = bricks.map(|brick| format!(" at {brick}")).collect();
    format!(
        "no lock of {oid}{at} was granted within {patience:?}: another transaction holds it or waits for it since before, or the brick hangs"
    )
}

/// The bricks that serve some of these logical nodes and cannot be reached, since when; of none, all in the space.
fn unreachable_bricks(standing: &SpaceStatus, nodes: &[NodeId]) -> Option<String> {
    let away = serving_bricks(standing, nodes).filter(|brick| brick.unreachable_since.is_some());
    let away: Vec<String> = away.map(ToString::to_string).collect();
    (!away.is_empty()).then(|| away.join(", "))
}

fn serving_bricks<'a>(standing: &'a SpaceStatus, nodes: &'a [NodeId]) -> impl Iterator<Item = &'a BrickStatus> {
    let serves = |brick: &&BrickStatus| brick.nodes.iter().any(|(node, _)| nodes.contains(node));
    standing.bricks.iter().filter(move |brick| nodes.is_empty() || serves(brick))
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
        };
        let bricks = vec![brick(1, false, 1), brick(2, true, 2), brick(3, false, 3)];
        SpaceStatus { space: "main".to_owned(), policy: FailurePolicy::Continue, bricks, schema: 0 }
    }

    #[test]
    fn who_has_waited_for_a_lock_is_told_that_it_was_a_lock_unless_the_brick_is_away() {
        let (standing, patience) = (space_status(), Duration::from_secs(3));
        let said = |node: u32| {
            let page = model::PageId { space: model::SpaceId(1), node: NodeId(node), number: 7 };
            lock_timeout_message(
                Some(&standing),
                true,
                (Oid::new(model::ClassId::NONE, page, 1), &[NodeId(node)]),
                patience,
            )
        };
        assert_eq!(
            said(1),
            "no lock of 1.0.1.7.1 at brick 1 (db1:6680) was granted within 3s: another transaction holds it or waits for it since before, or the brick hangs"
        );
        let away = "brick 2 (db2:6680) cannot be reached since 2023-11-14T22:13:20Z; it was waited for 3s";
        assert_eq!(said(2), away);
    }

    #[test]
    fn who_has_waited_is_told_for_whom() {
        let (standing, patience) = (space_status(), Duration::from_secs(3));
        let said = |nodes: &[u32]| {
            let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
            timeout_message(Some(&standing), true, &nodes, patience)
        };
        let away = "brick 2 (db2:6680) cannot be reached since 2023-11-14T22:13:20Z; it was waited for 3s";
        assert_eq!(said(&[2]), away);
        assert_eq!(said(&[1, 2, 3]), away, "the others have nothing to do with it");
        assert_eq!(said(&[1]), "brick 1 (db1:6680) has not answered within 3s");
        assert_eq!(said(&[1, 3]), "one of these has not answered within 3s: brick 1 (db1:6680), brick 3 (db3:6680)");
        assert_eq!(said(&[]), "the peer server has not answered within 3s");
        assert_eq!(
            timeout_message(Some(&standing), false, &[NodeId(2)], patience),
            "no peer server could be reached for 3s"
        );
    }
}
