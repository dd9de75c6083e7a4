//! The events of a simulated cluster, and who handles each of them.

use std::cmp::Ordering;
use std::rc::Rc;

use model::{NodeId, Object};
use node::drivers::brick::PageRead;
use protocol::brick::PendingRead;
use protocol::page_cache::PageImage;

use super::World;
use super::net::{Datagram, LinkId, Pid};
use super::wall_clocks::ClockMessage;
use crate::plan::DiskWork;

/// An event.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Deliver(LinkId, bool),
    Datagram(Pid, Pid, Rc<Datagram>),
    Wake(Pid, u64),
    Forced(Pid, u64),
    /// A brick handles the requests that have arrived.
    Arrived(Pid, u64),
    /// The driver of a brick hears what has become of rows.
    Written(Pid, u64),
    /// A process hears of classes and indexes, or has asked for the newest ones.
    Schema(Pid, u64, usize),
    SchemaRefreshed(Pid, u64),
    Broken(Pid, u64, LinkId),
    Connect(Pid, u64, usize),
    /// The same, after an attempt to connect to a process that was down.
    Reconnect(Pid, u64, usize),
    Resume(Pid, u64),
    Timer(Pid, u64),
    /// A peer server hears of users and permissions.
    Users(Pid, u64, usize),
    /// A client, by its address, asks a peer server for the status of the space.
    Watch(Pid, u64, (Pid, LinkId)),
    /// A peer server computes the status of the space again.
    Status(Pid, u64),
    /// A peer server closes a connection whose user may do less.
    HangUp(Pid, u64, LinkId),
    /// The connection that a redirector has in the name of a member has ended.
    MemberGone(Pid, u64, (Pid, LinkId)),
    /// About the clock of a process.
    Clock(Pid, u64, Rc<ClockMessage>),
    Read(Pid, u64, PendingRead),
    PageRead(Pid, u64, PendingRead, Rc<PageImage<Object>>),
    /// A brick reads a page for a logical node that was not in memory.
    ColdRead(Pid, u64, NodeId, PageRead),
    /// The driver of the logical node gets the page.
    ColdPageRead(Pid, u64, NodeId, PageRead, Rc<model::Result<PageImage<Object>>>),
    Act(usize),
}

/// An event with its time; of events at one time, the one that was scheduled first comes first.
pub(super) struct Scheduled {
    pub(super) at: u64,
    pub(super) number: u64,
    pub(super) event: Event,
}

impl Ord for Scheduled {
    /// The earliest is the largest: a heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl Event {
    /// The disk operation that this event completes.
    pub(super) fn work(&self) -> Option<(Pid, DiskWork)> {
        match self {
            Self::Forced(pid, _) => Some((*pid, DiskWork::Forces)),
            Self::PageRead(pid, ..) | Self::ColdPageRead(pid, ..) => Some((*pid, DiskWork::Reads)),
            _ => None,
        }
    }

    /// Whether the event is part of an operation under way.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(
            self,
            Self::Deliver(..)
                | Self::Datagram(..)
                | Self::Forced(..)
                | Self::Arrived(..)
                | Self::Written(..)
                | Self::Schema(..)
                | Self::SchemaRefreshed(..)
                | Self::Users(..)
                | Self::Watch(..)
                | Self::HangUp(..)
                | Self::MemberGone(..)
                | Self::Broken(..)
                | Self::Connect(..)
                | Self::Resume(..)
                | Self::Read(..)
                | Self::PageRead(..)
                | Self::ColdRead(..)
                | Self::ColdPageRead(..)
        )
    }
}

impl World {
    /// The frozen process that would have to handle the event.
    pub(super) fn frozen_process(&self, event: &Event) -> Option<Pid> {
        let pid = match event {
            Event::Deliver(link, up) => {
                let link = &self.net.links[*link];
                if *up { link.upper } else { link.lower }
            }
            Event::Datagram(_, to, _) => *to,
            Event::Wake(pid, _)
            | Event::Broken(pid, ..)
            | Event::Connect(pid, ..)
            | Event::Reconnect(pid, ..)
            | Event::Resume(pid, _)
            | Event::Arrived(pid, _)
            | Event::Written(pid, _)
            | Event::Schema(pid, ..)
            | Event::SchemaRefreshed(pid, _)
            | Event::Users(pid, ..)
            | Event::Watch(pid, ..)
            | Event::Status(pid, _)
            | Event::HangUp(pid, ..)
            | Event::MemberGone(pid, ..)
            | Event::Timer(pid, _)
            | Event::Clock(pid, ..)
            | Event::Read(pid, ..)
            | Event::PageRead(pid, ..)
            | Event::ColdRead(pid, ..)
            | Event::ColdPageRead(pid, ..) => *pid,
            Event::Forced(..) | Event::Act(_) => return None,
        };
        (self.processes[pid].frozen_until > self.now).then_some(pid)
    }

    pub(super) fn held_pair(&self, event: &Event) -> Option<(Pid, Pid)> {
        let pair = match event {
            Event::Deliver(link, up) => {
                let link = &self.net.links[*link];
                if *up { (link.lower, link.upper) } else { (link.upper, link.lower) }
            }
            Event::Datagram(from, to, _) => (*from, *to),
            _ => return None,
        };
        self.net.held.contains(&pair).then_some(pair)
    }

    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Deliver(link, up) => {
                self.count.events += 1;
                self.deliver(link, up);
            }
            Event::Datagram(from, to, message) => {
                self.count.events += 1;
                self.handle_datagram(from, to, &message);
            }
            Event::Wake(pid, at) => {
                if self.processes[pid].wake == at {
                    self.processes[pid].wake = u64::MAX;
                    self.count.events += 1;
                    self.wake(pid);
                }
            }
            Event::Forced(pid, life) => {
                self.count.events += 1;
                self.handle_forced(pid, life);
            }
            Event::Arrived(pid, life) => self.handle_arrived(pid, life),
            Event::Written(pid, life) => self.handle_driven_written(pid, life),
            Event::Schema(pid, life, number) => self.handle_schema(pid, life, number),
            Event::SchemaRefreshed(pid, life) => self.handle_schema_refreshed(pid, life),
            Event::Users(pid, life, version) => self.handle_users(pid, life, version),
            Event::Watch(pid, life, address) => self.handle_watch(pid, life, address),
            Event::Status(pid, life) => self.handle_status_due(pid, life),
            Event::HangUp(pid, life, link) => self.hang_up(pid, life, link),
            Event::MemberGone(pid, life, address) => self.handle_member_gone(pid, life, address),
            Event::Broken(pid, life, link) => self.handle_broken(pid, life, link),
            Event::Connect(pid, life, uplink) | Event::Reconnect(pid, life, uplink) => self.connect(pid, life, uplink),
            Event::Read(pid, life, ticket) => {
                self.count.events += 1;
                self.read_page(pid, life, ticket);
            }
            Event::ColdRead(pid, life, node, read) => {
                self.count.events += 1;
                self.read_cold_page(pid, life, node, read);
            }
            Event::ColdPageRead(pid, life, node, read, found) => {
                self.complete_cold_read(pid, life, (node, read), &found);
            }
            Event::PageRead(pid, life, ticket, fetched) => self.complete_read(pid, life, ticket, &fetched),
            Event::Resume(pid, life) | Event::Timer(pid, life) => {
                if self.processes[pid].incarnation == life {
                    self.resume(pid);
                }
            }
            Event::Clock(pid, life, message) => self.handle_clock(pid, life, &message),
            Event::Act(index) => {
                let action = self.plan.actions[index].1.clone();
                self.act(&action);
            }
        }
    }
}
