//! How things are in a space: which of its bricks can be reached, and so whether it serves.
//!
//! All of it is told each time. What has happened between two of them, whoever hears them works out; so nothing that is
//! lost in between is lost for good, and another server may go on telling.

use std::fmt::{self, Write};

use model::{FailurePolicy, NodeId, Result, Timestamp};

use super::ids;
use crate::convert::invalid;
use crate::proto::cluster;

/// Bytes of a name or an address.
const MAX_TEXT_BYTES: usize = 1024;

/// How things are in a space, as a peer server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceStatus {
    /// The name of the space.
    pub space: String,
    /// What happens while a brick cannot be reached.
    pub policy: FailurePolicy,
    /// The bricks that serve something of it, by rising numbers.
    pub bricks: Vec<BrickStatus>,
    /// A checksum of its classes and indexes: another one when any of them has changed.
    pub schema: u32,
}

/// How things are with a brick, as far as a space is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickStatus {
    /// Its number.
    pub brick: u32,
    /// Where it listens.
    pub address: String,
    /// Since when it cannot be reached; `None` if it can.
    pub unreachable_since: Option<Timestamp>,
    /// The logical nodes of the space that it serves, rising, and since which epoch of the placement map.
    pub nodes: Vec<(NodeId, u64)>,
}

impl SpaceStatus {
    /// The bricks that cannot be reached.
    pub fn unreachable(&self) -> impl Iterator<Item = &BrickStatus> {
        self.bricks.iter().filter(|brick| brick.unreachable_since.is_some())
    }

    /// Whether everything in the space is refused.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.policy == FailurePolicy::FailStop && self.unreachable().next().is_some()
    }

    /// Why everything in the space is refused, and what to do; `None` if it serves.
    #[must_use]
    pub fn why_stopped(&self) -> Option<String> {
        if !self.is_stopped() {
            return None;
        }
        let mut why = format!("space {:?} is stopped:", self.space);
        for (at, brick) in self.unreachable().enumerate() {
            let and = if at == 0 { "" } else { "," };
            // Writing to a text does not fail.
            let _ = write!(why, "{and} {brick}");
        }
        let name = &self.space;
        let _ = write!(
            why,
            "; it goes on when all of its bricks are back. To let the rest go on without: mortar space set {name} --policy \
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
        };
        let bricks = self.bricks.iter().map(brick).collect();
        cluster::SpaceStatus { space: self.space.clone(), policy, bricks, schema: self.schema }
    }

    pub(super) fn from_proto(message: cluster::SpaceStatus) -> Result<Self> {
        let policy = policy_from_proto(message.policy)?;
        let cluster::SpaceStatus { space, bricks, schema, .. } = message;
        let nodes: usize = bricks.iter().map(|brick| brick.nodes.len()).sum();
        if bricks.len() > ids::MAX_PARTICIPANTS || nodes > ids::MAX_PARTICIPANTS || space.len() > MAX_TEXT_BYTES {
            return Err(invalid(format!("a space of {} bricks and {nodes} logical nodes is none", bricks.len())));
        }
        let bricks = bricks.into_iter().map(BrickStatus::from_proto).collect::<Result<Vec<_>>>()?;
        if !bricks.is_sorted_by(|one, next| one.brick < next.brick) {
            return Err(invalid("bricks are named out of order, or twice"));
        }
        Ok(Self { space, policy, bricks, schema })
    }
}

/// `brick 2 (db2:6680)`, and if that is so ` cannot be reached since …`.
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
        let cluster::BrickStatus { brick, address, unreachable_since_us, nodes, epochs } = message;
        if nodes.len() != epochs.len() || address.len() > MAX_TEXT_BYTES {
            return Err(invalid(format!("brick {brick} serves {} nodes since {} epochs", nodes.len(), epochs.len())));
        }
        let nodes = nodes.into_iter().map(ids::node).collect::<Result<Vec<_>>>()?;
        if !nodes.is_sorted_by(|one, next| one < next) {
            return Err(invalid(format!("the logical nodes of brick {brick} are out of order")));
        }
        let (unreachable_since, nodes) =
            (unreachable_since_us.map(Timestamp::from_micros), nodes.into_iter().zip(epochs).collect());
        Ok(Self { brick, address, unreachable_since, nodes })
    }
}

/// Microseconds since 1970, as far as they fit.
fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanos().div_euclid(1000)).unwrap_or(i64::MAX)
}

/// The policy of a message.
#[must_use]
pub fn policy_to_proto(policy: FailurePolicy) -> cluster::FailurePolicy {
    match policy {
        FailurePolicy::FailStop => cluster::FailurePolicy::FailStop,
        FailurePolicy::Continue => cluster::FailurePolicy::Continue,
    }
}

/// What a message says of a policy.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if that is none that is known here.
pub fn policy_from_proto(number: i32) -> Result<FailurePolicy> {
    match cluster::FailurePolicy::try_from(number) {
        Ok(cluster::FailurePolicy::FailStop) => Ok(FailurePolicy::FailStop),
        Ok(cluster::FailurePolicy::Continue) => Ok(FailurePolicy::Continue),
        Err(_) => {
            Err(invalid(format!("{number} is no failure policy that is known here: upgrade one of the two sides")))
        }
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
    fn a_stopped_space_says_which_brick_since_when_and_what_to_do() {
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
    fn what_is_no_standing_is_refused() {
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
    }
}
