//! What the root of a logical node's tree has, for the checks of a run.

use model::{NodeId, Object, PageId};
use protocol::brick::Brick;
use protocol::ident::Version;
use protocol::validate::PageVersions;

use super::World;
use super::disk::{Disk, Objects};
use super::group_member::Root;
use super::net::Pid;
use super::process::ProcessMachine;

impl World {
    /// Whether bricks have the driver that ships.
    pub(super) fn is_driven(&self) -> bool {
        !self.has_groups() && !self.plan.cluster.bare
    }

    /// The version of a page at the root of its tree; `None` if there is no root now.
    pub(super) fn stored_version(&self, page: PageId) -> Option<Version> {
        match self.root(page.node) {
            Some((_, _, disk)) => Some(disk.version(page)),
            None => self.driven_brick(page.node).map(|driven| driven.version(page)),
        }
    }

    /// The pages of a node that are stored.
    pub(super) fn stored_pages(&self, node: NodeId) -> Vec<(PageId, Objects)> {
        match (self.root(node), self.driven_brick(node)) {
            (Some((_, _, disk)), _) => disk.pages.iter().map(|(page, state)| (*page, state.objects.clone())).collect(),
            (None, Some(driven)) => self.oracle.pages_of(node).map(|page| (page, driven.objects(page))).collect(),
            (None, None) => Vec::new(),
        }
    }

    /// The current root of a node's tree, if it has no driver: its process, machine and pages.
    pub(super) fn root(&self, node: NodeId) -> Option<(Pid, &Brick<Pid, Object>, &Disk)> {
        self.processes.iter().enumerate().find_map(|(pid, process)| match process.machine.as_ref()? {
            ProcessMachine::GroupMember(host) => {
                let Root { brick, pages, .. } = host.serving_root(node, process.clock.show(self.now))?;
                Some((pid, brick, pages))
            }
            ProcessMachine::Brick(process) if self.serving.get(&node) == Some(&pid) => {
                Some((pid, &process.brick, &process.disk))
            }
            _ => None,
        })
    }
}
