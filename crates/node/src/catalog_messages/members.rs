//! Requests about bricks and peer servers.

use meta::catalog::{BrickEntry, BrickId, MemberAnswer, MemberRequest, PeerEntry, PeerId, Storage};
use model::Result;
use wire::proto::members as proto;
use wire::proto::members::member_request::Request;

use super::invalid;

/// The message of a request.
#[must_use]
pub fn member_request_to_proto(request: &MemberRequest) -> proto::MemberRequest {
    let request = match *request {
        MemberRequest::List => Request::List(proto::List {}),
        MemberRequest::RemoveBrick { brick } => Request::RemoveBrick(brick.0),
        MemberRequest::RemovePeer { peer } => Request::RemovePeer(peer.0),
    };
    proto::MemberRequest { request: Some(request) }
}

/// The request of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it names no request.
pub fn member_request_from_proto(message: &proto::MemberRequest) -> Result<MemberRequest> {
    match message.request {
        Some(Request::List(proto::List {})) => Ok(MemberRequest::List),
        Some(Request::RemoveBrick(brick)) => Ok(MemberRequest::RemoveBrick { brick: BrickId(brick) }),
        Some(Request::RemovePeer(peer)) => Ok(MemberRequest::RemovePeer { peer: PeerId(peer) }),
        None => Err(invalid("a request about bricks and peer servers does not say what is wanted")),
    }
}

/// The message of an answer.
#[must_use]
pub fn member_answer_to_proto(answer: &MemberAnswer) -> proto::MemberAnswer {
    let brick = |entry: &BrickEntry| proto::Brick {
        brick: entry.brick.0,
        addresses: entry.addresses.clone(),
        storage: match entry.storage {
            Storage::Durable => proto::Storage::Durable,
            Storage::Memory => proto::Storage::Memory,
        }
        .into(),
        alive: entry.alive,
        leaving: entry.leaving,
        nodes: entry.nodes,
        coming: entry.coming,
        refused: entry.refused.clone(),
    };
    let peer =
        |entry: &PeerEntry| proto::Peer { peer: entry.peer.0, addresses: entry.addresses.clone(), alive: entry.alive };
    proto::MemberAnswer {
        bricks: answer.bricks.iter().map(brick).collect(),
        peers: answer.peers.iter().map(peer).collect(),
    }
}

/// The answer of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if a brick keeps its objects in a way that this version does not know.
pub fn member_answer_from_proto(message: proto::MemberAnswer) -> Result<MemberAnswer> {
    let brick = |entry: proto::Brick| {
        let storage = match proto::Storage::try_from(entry.storage) {
            Ok(proto::Storage::Durable) => Storage::Durable,
            Ok(proto::Storage::Memory) => Storage::Memory,
            Err(_) => return Err(invalid("a brick keeps its objects in a way that this version does not know")),
        };
        let proto::Brick { brick, addresses, alive, leaving, nodes, coming, refused, .. } = entry;
        Ok(BrickEntry { brick: BrickId(brick), addresses, storage, alive, leaving, nodes, coming, refused })
    };
    let peer = |proto::Peer { peer, addresses, alive }: proto::Peer| PeerEntry { peer: PeerId(peer), addresses, alive };
    let bricks = message.bricks.into_iter().map(brick).collect::<Result<_>>()?;
    Ok(MemberAnswer { bricks, peers: message.peers.into_iter().map(peer).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_the_same_after_the_wire() {
        for request in [
            MemberRequest::List,
            MemberRequest::RemoveBrick { brick: BrickId(7) },
            MemberRequest::RemovePeer { peer: PeerId(9) },
        ] {
            assert_eq!(member_request_from_proto(&member_request_to_proto(&request)).unwrap(), request);
        }
        let brick = |storage, alive| BrickEntry {
            brick: BrickId(3),
            addresses: vec!["h:1".to_owned(), "unix:/s".to_owned()],
            storage,
            alive,
            leaving: !alive,
            nodes: 4,
            coming: 5,
            refused: (!alive).then(|| "it went back in time".to_owned()),
        };
        let peers = vec![PeerEntry { peer: PeerId(6), addresses: vec!["h:2".to_owned()], alive: true }];
        let answer = MemberAnswer { bricks: vec![brick(Storage::Durable, true), brick(Storage::Memory, false)], peers };
        assert_eq!(member_answer_from_proto(member_answer_to_proto(&answer)).unwrap(), answer);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(member_request_from_proto(&proto::MemberRequest::default()).is_err());
        let bricks = vec![proto::Brick { storage: 9, ..proto::Brick::default() }];
        assert!(member_answer_from_proto(proto::MemberAnswer { bricks, ..Default::default() }).is_err());
    }
}
