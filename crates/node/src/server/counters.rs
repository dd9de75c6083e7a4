//! The counters of a server.
//!
//! Each I/O thread has counters of its own, so that threads seldom write to the same ones. A reader adds the threads up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::cluster::Message;
use wire::proto::request::Request;

/// The kinds of requests and their names in metrics.
macro_rules! kinds {
    ($($variant:ident $name:ident,)*) => {
        /// The names of the kinds of requests.
        pub(crate) const KINDS: &[&str] = &[$(stringify!($name)),*];

        /// A kind of request. Its number is its place in [`KINDS`].
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Kind {
            $($variant),*
        }

        impl Kind {
            /// The kind of a request.
            pub(crate) fn of_request(request: &Request) -> Self {
                match request {
                    $(Request::$variant(_) => Self::$variant,)*
                }
            }
        }
    };
}

kinds! {
    Ping ping,
    CreateSpace create_space,
    ListSpaces list_spaces,
    GetStatus get_status,
    Backup backup,
    Scrub scrub,
    Cut cut,
    ReleaseCut release_cut,
    BackupBase backup_base,
    Up up,
    Down down,
    Call call,
    Reply reply,
    Ask ask,
    Answer answer,
    NotServedHere not_served_here,
    Reserve reserve,
    ReturnPages return_pages,
    ReadObject read_object,
    GetNumbers get_numbers,
    GetSpace get_space,
    Scan scan,
    Deferred deferred,
    MetaGetRun meta_get_run,
    MetaRead meta_read,
    MetaGet meta_get,
    MetaWrite meta_write,
    MetaWatch meta_watch,
    MetaOpenSession meta_open_session,
    MetaKeepSession meta_keep_session,
    MetaCompareClocks meta_compare_clocks,
    MetaEndSession meta_end_session,
    BuildIndex build_index,
    Describe describe,
    Query query,
    FetchRows fetch_rows,
    EndQuery end_query,
    Administer administer,
    GetSchema get_schema,
    Define define,
    Watch watch,
    SpaceStatus space_status,
    Time time,
    SetSpace set_space,
    RemoveSpace remove_space,
    CopyRows copy_rows,
    CloneRows clone_rows,
    GetMoveIns get_move_ins,
    GetNodeUsages get_node_usages,
    GetSpaceUsages get_space_usages,
    CheckEmpty check_empty,
    RegisterRedirector register_redirector,
    GetGroups get_groups,
    Move move,
    MemberRequest member_request,
    JobRequest job_request,
    AskWitness ask_witness,
    Witnesses witnesses,
    BeginContent begin_content,
    WriteContent write_content,
    AbortContent abort_content,
    ReadContent read_content,
    LookUp look_up,
    ListEntries list_entries,
    ListEntriesOf list_entries_of,
    ListNodeObjects list_node_objects,
}

impl Kind {
    /// The kind of a message between machines.
    pub(crate) fn of_message(message: &Message) -> Self {
        match message {
            Message::Up { .. } => Self::Up,
            Message::Down { .. } => Self::Down,
            Message::Call { .. } => Self::Call,
            Message::Reply { .. } => Self::Reply,
            Message::Ask { .. } => Self::Ask,
            Message::Answer { .. } => Self::Answer,
            Message::NotServedHere { .. } => Self::NotServedHere,
            Message::Deferred { .. } => Self::Deferred,
            Message::Watch => Self::Watch,
            Message::SpaceStatus(_) => Self::SpaceStatus,
            Message::Time(_) => Self::Time,
        }
    }
}

/// A counter that is written by one thread for the most part.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounter(AtomicU64);

impl ThreadCounter {
    /// Adds to the counter.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests by kind.
#[derive(Debug)]
pub(crate) struct RequestCounters(pub(crate) [ThreadCounter; KINDS.len()]);

impl Default for RequestCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| ThreadCounter::default()))
    }
}

/// What one I/O thread counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    pub(crate) requests: RequestCounters,
    /// Bytes of content in requests.
    pub(crate) received: ThreadCounter,
    /// Bytes of content in answers and messages.
    pub(crate) sent: ThreadCounter,
}

impl ThreadCounters {
    /// Counts a request or a message of this kind.
    pub(crate) fn count(&self, kind: Kind) {
        self.requests.0[kind as usize].add(1);
    }
}

/// What a server counts.
#[derive(Debug)]
pub(crate) struct ServerCounters {
    pub(crate) threads: Vec<Arc<ThreadCounters>>,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) violations: AtomicU64,
}

impl ServerCounters {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| Arc::default()).collect(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            violations: AtomicU64::new(0),
        }
    }

    /// A counter summed over the threads.
    pub(crate) fn sum(&self, counter: impl Fn(&ThreadCounters) -> &ThreadCounter) -> u64 {
        self.threads.iter().map(|thread| counter(thread).get()).sum()
    }
}
