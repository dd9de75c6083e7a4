//! A tree on disk as a sequence of work: counted first, then produced in batches.

use std::path::PathBuf;

use tokio::sync::mpsc;
use wire::tasks;

use super::walk::{Entry, EntryKind, Prefix, Walk, WalkItem};
use super::{BATCH_BYTES, BATCH_FILES, MAX_BATCHES, SMALL_FILE_BYTES};
use crate::failure::{Failure, Result};

/// A tree to import or verify.
#[derive(Clone)]
pub(crate) struct TreePlan {
    /// The directory.
    pub(crate) root: PathBuf,
    /// The prefix of its names.
    pub(crate) prefix: Prefix,
    /// Most bytes of files, if limited.
    pub(crate) max_bytes: Option<u64>,
}

/// Work that a walk produces.
pub(crate) enum Work {
    /// Small files and links.
    Small(Vec<Entry>),
    /// A file of more than [`SMALL_FILE_BYTES`] bytes.
    Large(Entry),
    /// An entry that could not be read, and why.
    Failed(String),
}

/// The results of the first walk.
#[derive(Default)]
pub(crate) struct Survey {
    /// The directories, parents first.
    pub(crate) directories: Vec<Entry>,
    /// Files, links and directories.
    pub(crate) objects: u64,
    /// Bytes of content.
    pub(crate) bytes: u64,
    /// Sockets, pipes and devices.
    pub(crate) skipped: u64,
    /// Files that exceed the budget.
    pub(crate) left_out: u64,
}

impl TreePlan {
    /// Walks the tree once to count it.
    pub(crate) async fn survey(&self) -> Result<Survey> {
        let plan = self.clone();
        let walk = move || {
            let mut survey = Survey::default();
            for step in Walk::new(plan.root, plan.prefix, plan.max_bytes) {
                match step {
                    WalkItem::Entry(entry) => {
                        survey.objects += 1;
                        // Sparse files may have more bytes than any disk.
                        survey.bytes = survey.bytes.saturating_add(entry.size);
                        if entry.kind == EntryKind::Directory {
                            survey.directories.push(entry);
                        }
                    }
                    WalkItem::Special => survey.skipped += 1,
                    WalkItem::OverBudget => survey.left_out += 1,
                    // The second walk reports it.
                    WalkItem::Failed(_) => {}
                }
            }
            survey
        };
        tasks::spawn_blocking(walk).await.map_err(|e| Failure::new(format!("walking the tree failed: {e}")))
    }

    /// Walks the tree and sends its files and links. The walk ends when the receiver is dropped.
    pub(crate) fn hand_out(self) -> mpsc::Receiver<Work> {
        let (found, work) = mpsc::channel(MAX_BATCHES);
        tasks::spawn_blocking(move || hand_out(self, &found));
        work
    }
}

fn hand_out(plan: TreePlan, work: &mpsc::Sender<Work>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for step in Walk::new(plan.root, plan.prefix, plan.max_bytes) {
        let next = match step {
            WalkItem::Entry(entry) if entry.kind == EntryKind::Directory => continue,
            WalkItem::Entry(entry) if entry.size > SMALL_FILE_BYTES => Work::Large(entry),
            WalkItem::Entry(entry) => {
                bytes += entry.size;
                batch.push(entry);
                if batch.len() < BATCH_FILES && bytes < BATCH_BYTES {
                    continue;
                }
                bytes = 0;
                Work::Small(std::mem::take(&mut batch))
            }
            WalkItem::Failed(message) => Work::Failed(message),
            WalkItem::Special | WalkItem::OverBudget => continue,
        };
        if work.blocking_send(next).is_err() {
            return;
        }
    }
    if !batch.is_empty() {
        // If the receiver is gone, no more work is needed.
        let _ = work.blocking_send(Work::Small(batch));
    }
}
