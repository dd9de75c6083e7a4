//! Scrubs the logical nodes of a brick, and puts right what a scrub has found wrong.

use std::thread;
use std::time::Duration;

use meta::catalog::IndexState;
use model::{Error, ErrorKind, Result, SpaceId};
use store::Progress;
use tracing::{info, warn};
use wire::proto;
use wire::proto::ProblemRepair;

use super::Nodes;
use crate::brick::consistency::{Problem, Remedy, Severity, is_damage};
use crate::brick::node_driver::Repaired;
use crate::brick::node_manager::DamagedNodes;
use crate::brick::scrub::{self, NamedProblem, ScrubReport, Serving};

/// How often a repair is tried whose rows are changing, and the pause in between.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);
/// Most page numbers that are given up because one of them has an object without having been reserved.
const MAX_SKIPPED_PAGES: u64 = 1 << 32;

impl NamedProblem {
    /// The problem for the requester of a scrub.
    pub(crate) fn to_proto(&self, repair: ProblemRepair) -> proto::ScrubProblem {
        let (key, target) = match &self.problem {
            Problem::EntryMissing { entry, target } => (entry.key.to_bytes(), Some((*target).into())),
            _ => Default::default(),
        };
        proto::ScrubProblem {
            key,
            target,
            kind: self.problem.kind().to_owned(),
            what: self.to_string(),
            dangling: self.problem.severity() == Severity::Dangling,
            repair: repair.into(),
            object: self.problem.object().map(Into::into),
        }
    }
}

impl Nodes {
    /// Reads and checks everything: see [`scrub::scrub`].
    ///
    /// # Errors
    /// Those of reading the store, and if `progress` ends it.
    pub(crate) fn scrub(&self, progress: &dyn Progress) -> Result<ScrubReport> {
        self.with_serving(|serving| scrub::scrub(&self.store, serving, progress))
    }

    /// Calls a function with what a scrub asks of this brick.
    pub(crate) fn with_serving<T>(&self, call: impl FnOnce(&Serving<'_>) -> T) -> T {
        let served = || self.served_epochs();
        let is_unique = |space, index| self.is_unique(space, index);
        let mixed_outcomes = |node| {
            // A node that is not served any more is another brick's to report.
            self.with_driver(node, |driver| Ok(driver.mixed_outcomes().collect())).unwrap_or_default()
        };
        let damaged = || DamagedNodes::clone(&self.damaged());
        call(&Serving {
            served: &served,
            durable_counts: &|| self.durable_counts(),
            damaged: &damaged,
            is_unique: &is_unique,
            mixed_outcomes: &mixed_outcomes,
        })
    }

    /// Whether an index of a space is unique and ready, so that no two objects have its values.
    pub(crate) fn is_unique(&self, space: SpaceId, index: u32) -> bool {
        let Some(catalog) = self.cluster_view.catalog() else { return false };
        let schema = catalog.schema(space);
        schema.indexes().any(|known| known.id.0 == index && known.unique && known.state == IndexState::Ready)
    }

    /// Puts right what can be, without loss unless `discards`, and says what came of each problem. What is done is durable.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) fn repair_all(&self, problems: &[NamedProblem], discards: bool) -> Result<Vec<proto::ScrubProblem>> {
        let mut all = Vec::with_capacity(problems.len());
        for named in problems {
            let repair = match named.problem.remedy() {
                Remedy::None => ProblemRepair::Impossible,
                Remedy::Transaction => ProblemRepair::Possible,
                Remedy::Loses if !discards => ProblemRepair::Loses,
                Remedy::Loses | Remedy::Lossless => self.repair(&named.problem).unwrap_or_else(|error| {
                    warn!(problem = %named, %error, "a problem cannot be put right");
                    if is_damage(&error) { ProblemRepair::Impossible } else { ProblemRepair::Busy }
                }),
            };
            if repair == ProblemRepair::Done {
                info!(problem = %named, "a scrub has put something right");
            }
            all.push(named.to_proto(repair));
        }
        self.store.force()?;
        Ok(all)
    }

    fn repair(&self, problem: &Problem) -> Result<ProblemRepair> {
        if let Problem::PageNotReserved { oid, .. } = problem {
            return self.reserve_page(oid.space(), problem, oid.page().number);
        }
        for _ in 0..ATTEMPTS {
            match self.with_driver(problem.node(), |driver| driver.repair(problem, self.time.now()))? {
                Repaired::Done => return Ok(ProblemRepair::Done),
                Repaired::NotNeeded => return Ok(ProblemRepair::NotNeeded),
                Repaired::Impossible => return Ok(ProblemRepair::Impossible),
                Repaired::Busy => thread::sleep(PAUSE),
            }
        }
        Ok(ProblemRepair::Busy)
    }

    /// Reserves all pages up to one, so that no client gets it as a new one.
    fn reserve_page(&self, space: SpaceId, problem: &Problem, number: u64) -> Result<ProblemRepair> {
        let next = self.with_driver(problem.node(), |driver| driver.next_page(space))?;
        let Some(pages) = (number + 1).checked_sub(next).filter(|pages| *pages > 0) else {
            return Ok(ProblemRepair::NotNeeded);
        };
        if pages > MAX_SKIPPED_PAGES {
            return Ok(ProblemRepair::Impossible);
        }
        let (sender, done) = std::sync::mpsc::sync_channel(1);
        self.reserve(problem.node(), space, pages, move |reserved| drop(sender.send(reserved)));
        let lost = |_| Error::new(ErrorKind::Unavailable, "the brick is stopping");
        done.recv().map_err(lost)??;
        Ok(ProblemRepair::Done)
    }
}
