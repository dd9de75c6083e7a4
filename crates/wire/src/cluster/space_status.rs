//! The status of a space: which of its bricks are reachable, and so whether it serves.
//!
//! Each message has the whole status; its receiver derives the changes. A lost message therefore has no lasting effect, and
//! another server can continue sending.

use std::fmt::{self, Write};
use std::sync::Arc;

use model::{Error, ErrorKind, FailurePolicy, NodeId, Result, Timestamp};

use super::ids;
use crate::convert::invalid;
use crate::proto::cluster;

/// Most bytes of a name, of an address, or of the description of a damage.
const MAX_TEXT_BYTES: usize = 1024;

/// The status of a space as a peer server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceStatus {
    /// The name of the space.
    pub space: String,
    /// What happens while a brick is unreachable.
    pub policy: FailurePolicy,
    /// The bricks that serve logical nodes of the space, by ascending number.
    pub bricks: Vec<BrickStatus>,
    /// A checksum of its classes and indexes, which changes with them.
    pub schema: u32,
}

/// The status of a brick, as far as a space is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickStatus {
    /// Its number.
    pub brick: u32,
    /// Its address.
    pub address: String,
    /// Since when it is unreachable; `None` if it is reachable.
    pub unreachable_since: Option<Timestamp>,
    /// The logical nodes of the space that it serves, ascending, each with the epoch since which it does.
    pub nodes: Vec<(NodeId, u64)>,
    /// Those of the nodes that it cannot serve because their rows are damaged, ascending, each with what is damaged.
    pub damaged: Vec<(NodeId, Arc<str>)>,
}

impl SpaceStatus {
    /// The unreachable bricks.
    pub fn unreachable(&self) -> impl Iterator<Item = &BrickStatus> {
        self.bricks.iter().filter(|brick| brick.unreachable_since.is_some())
    }

    /// What is damaged at a logical node, if its brick cannot serve it for that reason.
    #[must_use]
    pub fn damage_of(&self, node: NodeId) -> Option<&str> {
        self.damaged().find(|(_, damaged, _)| *damaged == node).map(|(.., damage)| damage)
    }

    /// The logical nodes whose bricks cannot serve them because their rows are damaged, with the bricks and what is damaged.
    pub fn damaged(&self) -> impl Iterator<Item = (&BrickStatus, NodeId, &str)> {
        self.bricks.iter().flat_map(|brick| brick.damaged.iter().map(move |(node, damage)| (brick, *node, &**damage)))
    }

    /// Whether all requests in the space are refused.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.policy == FailurePolicy::FailStop && self.unreachable().next().is_some()
    }

    /// Why all requests in the space are refused, and what to do; `None` if it serves.
    #[must_use]
    pub fn why_stopped(&self) -> Option<String> {
        if !self.is_stopped() {
            return None;
        }
        let mut why = format!("space {:?} is stopped:", self.space);
        for (at, brick) in self.unreachable().enumerate() {
            let and = if at == 0 { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(why, "{and} {brick}");
        }
        let name = &self.space;
        let _ = write!(
            why,
            "; it serves again when all of its bricks are back. To serve the rest without them: mortar space set {name} --policy \
             continue"
        );
        Some(why)
    }

    pub(super) fn to_proto(&self) -> cluster::SpaceStatus {
        let policy = policy_to_proto(self.policy) as i32;
        let brick = |standing: &BrickStatus| cluster::BrickStatus {
            brick: standing.brick,
            address: standing.address.clone(),
            unreachable_since_us: standing.unreachable_since.map(micros),
            nodes: ids::numbers(standing.nodes.iter().map(|(node, _)| node)),
            epochs: standing.nodes.iter().map(|(_, epoch)| *epoch).collect(),
            damaged: standing.damaged.iter().map(damaged_to_proto).collect(),
        };
        let bricks = self.bricks.iter().map(brick).collect();
        cluster::SpaceStatus { space: self.space.clone(), policy, bricks, schema: self.schema }
    }

    pub(super) fn from_proto(message: cluster::SpaceStatus) -> Result<Self> {
        let policy = policy_from_proto(message.policy)?;
        let cluster::SpaceStatus { space, bricks, schema, .. } = message;
        let nodes: usize = bricks.iter().map(|brick| brick.nodes.len()).sum();
        if bricks.len() > ids::MAX_PARTICIPANTS || nodes > ids::MAX_PARTICIPANTS || space.len() > MAX_TEXT_BYTES {
            return Err(invalid(format!("a status of a space has {} bricks and {nodes} logical nodes", bricks.len())));
        }
        let bricks = bricks.into_iter().map(BrickStatus::from_proto).collect::<Result<Vec<_>>>()?;
        if !bricks.is_sorted_by(|one, next| one.brick < next.brick) {
            return Err(invalid("the bricks of a status are out of order, or repeated"));
        }
        Ok(Self { space, policy, bricks, schema })
    }
}

/// `brick 2 (db2:6680)`, followed by ` cannot be reached since …` if it is unreachable.
impl fmt::Display for BrickStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "brick {} ({})", self.brick, self.address)?;
        match self.unreachable_since {
            Some(since) => write!(f, " cannot be reached since {since}"),
            None => Ok(()),
        }
    }
}

impl BrickStatus {
    fn from_proto(message: cluster::BrickStatus) -> Result<Self> {
        let cluster::BrickStatus { brick, address, unreachable_since_us, nodes, epochs, damaged } = message;
        if nodes.len() != epochs.len() || address.len() > MAX_TEXT_BYTES {
            return Err(invalid(format!(
                "brick {brick} has {} logical nodes and {} epochs",
                nodes.len(),
                epochs.len()
            )));
        }
        let nodes = nodes.into_iter().map(ids::node).collect::<Result<Vec<_>>>()?;
        if !nodes.is_sorted_by(|one, next| one < next) {
            return Err(invalid(format!("the logical nodes of brick {brick} are out of order")));
        }
        let damaged = damaged.into_iter().map(damaged_from_proto).collect::<Result<Vec<_>>>()?;
        let are_served = damaged.iter().all(|(node, _)| nodes.binary_search(node).is_ok());
        if !are_served || !damaged.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(invalid(format!(
                "the damaged logical nodes of brick {brick} are out of order, or not its own"
            )));
        }
        let (unreachable_since, nodes) =
            (unreachable_since_us.map(Timestamp::from_micros), nodes.into_iter().zip(epochs).collect());
        Ok(Self { brick, address, unreachable_since, nodes, damaged })
    }
}

fn damaged_to_proto((node, damage): &(NodeId, Arc<str>)) -> cluster::DamagedNode {
    cluster::DamagedNode { node: node.0, damage: damage.to_string() }
}

fn damaged_from_proto(message: cluster::DamagedNode) -> Result<(NodeId, Arc<str>)> {
    Ok((ids::node(message.node)?, damage_from_proto(message.damage)?))
}

/// The description of a damage.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it is too long.
pub(super) fn damage_from_proto(damage: String) -> Result<Arc<str>> {
    if damage.len() > MAX_TEXT_BYTES {
        return Err(invalid(format!("the description of a damage has {} bytes", damage.len())));
    }
    Ok(damage.into())
}

/// The error of what needs a logical node that cannot be served because its rows are damaged.
#[must_use]
pub fn damaged_node_error(node: NodeId, damage: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("logical node {:x} cannot be served: {damage}", node.0))
}

/// The description of a damage, as long as a message may have it.
#[must_use]
pub fn describe_damage(error: &Error) -> Arc<str> {
    let text = error.message();
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].into()
}

/// Microseconds since 1970, limited to the range of `i64`.
fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanos().div_euclid(1000)).unwrap_or(i64::MAX)
}

/// Encodes a policy.
#[must_use]
pub fn policy_to_proto(policy: FailurePolicy) -> cluster::FailurePolicy {
    match policy {
        FailurePolicy::FailStop => cluster::FailurePolicy::FailStop,
        FailurePolicy::Continue => cluster::FailurePolicy::Continue,
    }
}

/// Decodes a policy.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it is unknown.
pub fn policy_from_proto(number: i32) -> Result<FailurePolicy> {
    match cluster::FailurePolicy::try_from(number) {
        Ok(cluster::FailurePolicy::FailStop) => Ok(FailurePolicy::FailStop),
        Ok(cluster::FailurePolicy::Continue) => Ok(FailurePolicy::Continue),
        Err(_) => Err(invalid(format!("failure policy {number} is unknown: upgrade this program"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space_status() -> SpaceStatus {
        let brick = |brick, unreachable_since, nodes: &[u32]| BrickStatus {
            brick,
            address: format!("db{brick}:6680"),
            unreachable_since,
            nodes: nodes.iter().map(|node| (NodeId(*node), 3)).collect(),
            damaged: nodes.iter().filter(|node| **node == 3).map(|node| (NodeId(*node), "a row".into())).collect(),
        };
        let away = Some(Timestamp::from_micros(1_700_000_000_000_000));
        SpaceStatus {
            space: "main".to_owned(),
            policy: FailurePolicy::FailStop,
            bricks: vec![brick(1, None, &[1, 3]), brick(2, away, &[2, 4])],
            schema: 7,
        }
    }

    #[test]
    fn stopped_space_names_the_brick_the_time_and_the_remedy() {
        let why = space_status().why_stopped().unwrap();
        for part in
            ["\"main\"", "brick 2 (db2:6680)", "2023-11-14T22:13:20Z", "mortar space set main --policy continue"]
        {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(SpaceStatus { policy: FailurePolicy::Continue, ..space_status() }.why_stopped(), None);
        let well = SpaceStatus { bricks: space_status().bricks.drain(..1).collect(), ..space_status() };
        assert_eq!(well.why_stopped(), None);
    }

    #[test]
    fn description_of_a_damage_fits_into_a_message() {
        let long = Error::new(ErrorKind::Corrupt, "ä".repeat(MAX_TEXT_BYTES));
        let text = describe_damage(&long);
        assert_eq!((text.len(), damage_from_proto(text.to_string()).is_ok()), (MAX_TEXT_BYTES, true));
    }

    #[test]
    fn invalid_statuses_are_refused() {
        assert_eq!(SpaceStatus::from_proto(space_status().to_proto()).unwrap(), space_status());
        let wrong = |change: &dyn Fn(&mut cluster::SpaceStatus)| {
            let mut message = space_status().to_proto();
            change(&mut message);
            assert!(SpaceStatus::from_proto(message).is_err());
        };
        wrong(&|message| message.policy = 7);
        wrong(&|message| message.bricks.reverse());
        wrong(&|message| message.bricks[0].nodes.reverse());
        wrong(&|message| message.bricks[0].nodes[1] = 1 << 24);
        wrong(&|message| message.bricks[0].epochs.clear());
        wrong(&|message| message.bricks[1].address = "x".repeat(MAX_TEXT_BYTES + 1));
        wrong(&|message| message.bricks[1].nodes = vec![1; ids::MAX_PARTICIPANTS + 1]);
        wrong(&|message| message.bricks[0].damaged[0].node = 2);
        wrong(&|message| message.bricks[0].damaged[0].damage = "x".repeat(MAX_TEXT_BYTES + 1));
        wrong(&|message| {
            let again = message.bricks[0].damaged[0].clone();
            message.bricks[0].damaged.push(again);
        });
    }
}
