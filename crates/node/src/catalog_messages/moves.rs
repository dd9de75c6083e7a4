//! Requests about where logical nodes are.

use meta::catalog::{BrickId, BrickState, MoveAnswer, MoveInState, MovePhase, MoveRequest, NodeState};
use model::Result;
use wire::proto::moves as proto;
use wire::proto::moves::r#move::Request;

use super::invalid;

/// The message of a request.
#[must_use]
pub fn move_request_to_proto(request: &MoveRequest) -> proto::Move {
    let request = match request.clone() {
        MoveRequest::Show { nodes } => Request::Show(proto::Show { nodes }),
        MoveRequest::To { nodes, brick, dry_run } => Request::To(proto::MoveTo { nodes, brick: brick.0, dry_run }),
        MoveRequest::Spread { space, dry_run } => Request::Spread(proto::Spread { space, dry_run }),
        MoveRequest::Drain { brick, dry_run } => Request::Drain(proto::Drain { brick: brick.0, dry_run }),
        MoveRequest::Cancel { nodes, drain } => {
            Request::Cancel(proto::Cancel { nodes, drain: drain.map(|brick| brick.0) })
        }
    };
    proto::Move { request: Some(request) }
}

/// The request of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it names no request.
pub fn move_request_from_proto(message: &proto::Move) -> Result<MoveRequest> {
    let missing = || invalid("a request about logical nodes does not say what is wanted");
    Ok(match message.request.clone().ok_or_else(missing)? {
        Request::Show(proto::Show { nodes }) => MoveRequest::Show { nodes },
        Request::To(proto::MoveTo { nodes, brick, dry_run }) => {
            MoveRequest::To { nodes, brick: BrickId(brick), dry_run }
        }
        Request::Spread(proto::Spread { space, dry_run }) => MoveRequest::Spread { space, dry_run },
        Request::Drain(proto::Drain { brick, dry_run }) => MoveRequest::Drain { brick: BrickId(brick), dry_run },
        Request::Cancel(proto::Cancel { nodes, drain }) => MoveRequest::Cancel { nodes, drain: drain.map(BrickId) },
    })
}

/// The message of an answer.
#[must_use]
pub fn move_answer_to_proto(answer: &MoveAnswer) -> proto::Moved {
    let move_in = |node: u32, state: &MoveInState| proto::MoveIn {
        node,
        rows: state.rows,
        bytes: state.bytes,
        pause_us: state.pause_us,
        problem: state.trouble.clone().unwrap_or_default(),
    };
    let node = |state: &NodeState| proto::NodeState {
        node: state.node,
        space: state.space.clone(),
        brick: state.brick.0,
        moves: state.moves,
        to: state.to.map(|brick| brick.0),
        phase: state.phase.map(|phase| match phase {
            MovePhase::Copying => proto::MovePhase::Copying.into(),
            MovePhase::Sealed => proto::MovePhase::Sealed.into(),
        }),
        move_in: state.arrival.as_ref().map(|arrival| move_in(state.node, arrival)),
    };
    let brick = |state: &BrickState| proto::BrickState {
        brick: state.brick.0,
        address: state.address.clone(),
        alive: state.alive,
        leaving: state.leaving,
    };
    proto::Moved { nodes: answer.nodes.iter().map(node).collect(), bricks: answer.bricks.iter().map(brick).collect() }
}

/// The answer of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if a move is in a phase that this version does not know.
pub fn move_answer_from_proto(message: proto::Moved) -> Result<MoveAnswer> {
    let phase = |phase: i32| match proto::MovePhase::try_from(phase) {
        Ok(proto::MovePhase::Copying) => Ok(MovePhase::Copying),
        Ok(proto::MovePhase::Sealed) => Ok(MovePhase::Sealed),
        Err(_) => Err(invalid("a logical node moves in a way that this version does not know")),
    };
    let node = |state: proto::NodeState| {
        Ok(NodeState {
            node: state.node,
            space: state.space,
            brick: BrickId(state.brick),
            moves: state.moves,
            to: state.to.map(BrickId),
            phase: state.phase.map(phase).transpose()?,
            arrival: state.move_in.map(move_in_from_proto),
        })
    };
    let brick = |proto::BrickState { brick, address, alive, leaving }: proto::BrickState| BrickState {
        brick: BrickId(brick),
        address,
        alive,
        leaving,
    };
    let nodes = message.nodes.into_iter().map(node).collect::<Result<_>>()?;
    Ok(MoveAnswer { nodes, bricks: message.bricks.into_iter().map(brick).collect() })
}

/// The progress that a destination brick reports.
pub(crate) fn move_in_from_proto(message: proto::MoveIn) -> MoveInState {
    let proto::MoveIn { rows, bytes, pause_us, problem, .. } = message;
    MoveInState { rows, bytes, pause_us, trouble: Some(problem).filter(|problem| !problem.is_empty()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_after_the_wire() {
        for request in [
            MoveRequest::Show { nodes: vec![] },
            MoveRequest::To { nodes: vec![1, 2], brick: BrickId(3), dry_run: true },
            MoveRequest::Spread { space: None, dry_run: false },
            MoveRequest::Spread { space: Some("main".to_owned()), dry_run: true },
            MoveRequest::Drain { brick: BrickId(0), dry_run: false },
            MoveRequest::Cancel { nodes: vec![7], drain: None },
            MoveRequest::Cancel { nodes: vec![], drain: Some(BrickId(0)) },
        ] {
            assert_eq!(move_request_from_proto(&move_request_to_proto(&request)).unwrap(), request);
        }
    }

    #[test]
    fn answers_are_the_same_after_the_wire() {
        let node = |phase, arrival| NodeState {
            node: 4,
            space: "main".to_owned(),
            brick: BrickId(1),
            moves: 2,
            to: Some(BrickId(0)),
            phase,
            arrival,
        };
        let arrival = |pause_us, trouble: Option<&str>| {
            Some(MoveInState { rows: 5, bytes: 6, pause_us, trouble: trouble.map(str::to_owned) })
        };
        let nodes = vec![
            node(None, None),
            node(Some(MovePhase::Copying), arrival(None, Some("no room"))),
            node(Some(MovePhase::Sealed), arrival(Some(0), None)),
            NodeState { to: None, ..node(None, None) },
        ];
        let bricks = vec![BrickState { brick: BrickId(9), address: "h:1".to_owned(), alive: true, leaving: false }];
        let answer = MoveAnswer { nodes, bricks };
        assert_eq!(move_answer_from_proto(move_answer_to_proto(&answer)).unwrap(), answer);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(move_request_from_proto(&proto::Move::default()).is_err());
        let nodes = vec![proto::NodeState { phase: Some(9), ..proto::NodeState::default() }];
        assert!(move_answer_from_proto(proto::Moved { nodes, ..Default::default() }).is_err());
    }
}
