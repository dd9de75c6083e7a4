//! What a server says of itself and of the long jobs it did.

use model::{EntryKey, Oid};
use wire::proto;

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The server's software and version.
    pub agent: String,
    /// Counters and gauges by name, as in `/metrics` without the prefix `mortar_`; a name's end tells its unit.
    pub metrics: Vec<(String, u64)>,
    /// What it is: "brick", "peer server" or "meta-server"; empty if it is an older one, which is a brick.
    pub role: String,
    /// Why it is not healthy; `None` if it is.
    pub health_problem: Option<String>,
    /// The number of its process on its machine; 0 if it is an older one.
    pub process: u32,
    /// The clocks of the cluster's processes, as far as the server knows them.
    pub clocks: Vec<ClockStatus>,
}

/// The clock of a process beside the time of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// The process, such as "brick 2".
    pub process: String,
    /// How far its clock is ahead, in milliseconds; negative if it is behind.
    pub offset_ms: i64,
    /// Whether that is more than allowed: the process makes no timestamps, and serves nothing that needs some.
    pub refused: bool,
}

impl Status {
    /// The metric of this name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// What the objects of a space take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceUsage {
    /// The space.
    pub name: String,
    /// The bricks that have answered, with what the logical nodes of the space take there.
    pub bricks: Vec<(u32, Usage)>,
    /// How many logical nodes are missing, because their bricks have not answered.
    pub unknown_nodes: u32,
}

/// Objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of objects, collections included.
    pub objects: u64,
    /// Bytes of the objects and of their attributes.
    pub bytes: u64,
    /// Bytes of uploads that no object has yet. They end with their leases, a minute after their last bytes.
    pub staged_bytes: u64,
}

impl SpaceUsage {
    /// The sum over all bricks that have answered.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.bricks.iter().fold(Usage::default(), |sum, (_, one)| Usage {
            objects: sum.objects.saturating_add(one.objects),
            bytes: sum.bytes.saturating_add(one.bytes),
            staged_bytes: sum.staged_bytes.saturating_add(one.staged_bytes),
        })
    }
}

/// How far a long job has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is done, in the job's unit (bytes or objects).
    pub done: u64,
    /// How much there is in all; 0 if that is not known.
    pub total: u64,
}

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Bytes of the archive.
    pub bytes: u64,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Objects that were read and checked.
    pub objects: u64,
    /// Bytes that were read and checked.
    pub bytes: u64,
    /// What is damaged, each in words that name the object; empty if all is well.
    pub damaged: Vec<String>,
    /// What was wrong and was put right without being asked for, in words: wrong counts of objects.
    pub corrected: Vec<String>,
    /// The first problems of rows that contradict each other.
    pub problems: Vec<ScrubProblem>,
    /// How many more there are that are damage.
    pub unlisted: u64,
    /// How many more there are that lead nowhere.
    pub unlisted_dangling: u64,
}

/// Rows that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubProblem {
    /// The kind, such as `extent_missing`.
    pub kind: String,
    /// What is wrong, in words that name the object.
    pub what: String,
    /// Whether something leads to an object that does not exist, which applications can cause. Other problems are damage.
    pub dangling: bool,
    /// What a repair can do about it, or has done.
    pub repair: ProblemRepair,
    /// The object that it is about, if it is about one.
    pub object: Option<Oid>,
    /// Of a problem of the kind `entry_missing`: the key of the entry in `object`, and its target.
    pub entry: Option<(EntryKey, Oid)>,
}

/// What a repair can do about a problem, or has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemRepair {
    /// Nothing: what there is does not tell what is right.
    Impossible,
    /// It can put it right.
    Possible,
    /// It can put it right, and loses bytes that no object has.
    Loses,
    /// It has put it right.
    Done,
    /// The problem was gone.
    NotNeeded,
    /// The rows were changing all the time.
    Busy,
}

impl From<proto::ScrubProblem> for ScrubProblem {
    fn from(problem: proto::ScrubProblem) -> Self {
        let repair = match problem.repair() {
            proto::ProblemRepair::Impossible => ProblemRepair::Impossible,
            proto::ProblemRepair::Possible => ProblemRepair::Possible,
            proto::ProblemRepair::Loses => ProblemRepair::Loses,
            proto::ProblemRepair::Done => ProblemRepair::Done,
            proto::ProblemRepair::NotNeeded => ProblemRepair::NotNeeded,
            proto::ProblemRepair::Busy => ProblemRepair::Busy,
        };
        let proto::ScrubProblem { kind, what, dangling, object, key, target, .. } = problem;
        let entry = target.and_then(|target| Some((EntryKey::new(key.to_vec()).ok()?, target.into())));
        Self { kind, what, dangling, repair, object: object.map(Oid::from), entry }
    }
}

/// What a scrub does about problems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Put right what can be put right without loss.
    pub repair: bool,
    /// With `repair`: and what loses bytes that no object has.
    pub discard: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_bricks_with_vast_sparse_blobs_is_added_up() {
        let brick = |objects, bytes| Usage { objects, bytes, staged_bytes: 1 };
        let usage = SpaceUsage { bricks: vec![(1, brick(2, u64::MAX)), (2, brick(3, 4))], ..SpaceUsage::default() };
        assert_eq!(usage.total(), Usage { objects: 5, bytes: u64::MAX, staged_bytes: 2 });
    }
}
