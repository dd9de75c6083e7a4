//! What can be wrong between the rows of a logical node.

use std::fmt;

use model::{ContentId, Entry, NodeId, Oid, PageId};
use protocol::commit::coordinator::MixedOutcome;
use protocol::ident::{ClientId, TxnId};

use crate::brick::index_rows::IndexId;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Something leads to an object that does not exist. Applications can cause that: a deletion leaves references and names.
    Dangling,
    /// The store contradicts itself.
    Damage,
}

/// What a repair can do about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// What there is does not tell what is right.
    None,
    /// It can be put right, and nothing is lost.
    Lossless,
    /// It can be put right, and something is lost.
    Loses,
    /// A transaction of a client can put it right, without loss.
    Transaction,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// A row cannot be read or decoded.
    RowDamaged {
        node: NodeId,
        what: String,
        /// Whether a part of the B-tree cannot be read, which a scrub of the store names, too.
        is_unreadable_part: bool,
    },
    /// An object cannot be decoded, or has another checksum.
    ObjectDamaged { oid: Oid, what: String },
    /// A page has objects and no head, so its slots count as free.
    HeadMissing { oid: Oid },
    /// The version of a page is above all positions that were reserved: it could be given to another state.
    PositionNotReserved { page: PageId, position: u64, limit: u64 },
    /// An object is in a page that could be given to a client as a new one.
    PageNotReserved { oid: Oid, next: u64 },
    /// Bytes of a content have another checksum, or cannot be read.
    ContentDamaged { content: ContentId, what: String },
    /// An object names a content that does not exist.
    ContentMissing { oid: Oid, content: ContentId },
    /// An object says another size than its content has.
    ContentSize { oid: Oid, content: ContentId, size: u64, found: u64 },
    /// An object names a content of another space or logical node.
    ContentForeign { oid: Oid, content: ContentId },
    /// Two objects name one content.
    ContentShared { oid: Oid, content: ContentId, other: Oid },
    /// No object names a content, and it is not staged.
    ContentUnnamed { content: ContentId, size: u64 },
    /// An object is not in the extent of its class.
    ExtentMissing { oid: Oid },
    /// The extent of a class has an object that does not exist or has another class.
    ExtentStray { oid: Oid },
    /// An index does not have an object.
    IndexEntryMissing { oid: Oid, index: IndexId },
    /// An index has an entry for an object that does not exist or has other values.
    IndexEntryStray {
        index: IndexId,
        /// The object at the place in the entry, if there is one. Without it the place tells no class, so no identifier.
        object: Option<Oid>,
        page: PageId,
        slot: u16,
        row: Vec<u8>,
    },
    /// There are entries of an index that does not exist.
    IndexUnknown { index: IndexId, row: Vec<u8> },
    /// Two objects have the same values in a unique index.
    ValuesTwice { oid: Oid, other: Oid, index: IndexId },
    /// A collection has another number of entries than it says.
    CountWrong { collection: Oid, counted: u64, found: u64 },
    /// There are entries of a collection that does not exist.
    CollectionMissing { collection: Oid, entries: u64 },
    /// An entry is not found from its target.
    ReverseMissing { entry: Entry, target: Oid },
    /// A target is that of an entry that does not exist.
    EntryMissing { entry: Entry, target: Oid },
    /// An entry is found from an object that is not its target.
    ReverseStray { entry: Entry, target: Oid },
    /// The target of an entry does not exist.
    TargetMissing { entry: Entry, target: Oid },
    /// A content is marked as staged and does not exist.
    StagedMissing { content: ContentId },
    /// A staged content has another size than its mark.
    StagedSize { content: ContentId, size: u64, found: u64 },
    /// What is known of a transaction contradicts itself or something else.
    TransactionContradictory { node: NodeId, txn: TxnId, what: String },
    /// A transaction has ended here, and another logical node has the opposite outcome.
    MixedOutcome { node: NodeId, txn: TxnId, mixed: MixedOutcome },
    /// What a client has heard contradicts its key.
    MarkContradictory { node: NodeId, client: ClientId },
}

impl Problem {
    /// The name of the kind, for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::RowDamaged { .. } => "row_damaged",
            Self::ObjectDamaged { .. } => "object_damaged",
            Self::HeadMissing { .. } => "head_missing",
            Self::PositionNotReserved { .. } => "position_not_reserved",
            Self::PageNotReserved { .. } => "page_not_reserved",
            Self::ContentDamaged { .. } => "content_damaged",
            Self::ContentMissing { .. } => "content_missing",
            Self::ContentSize { .. } => "content_size",
            Self::ContentForeign { .. } => "content_foreign",
            Self::ContentShared { .. } => "content_shared",
            Self::ContentUnnamed { .. } => "content_unnamed",
            Self::ExtentMissing { .. } => "extent_missing",
            Self::ExtentStray { .. } => "extent_stray",
            Self::IndexEntryMissing { .. } => "index_entry_missing",
            Self::IndexEntryStray { .. } => "index_entry_stray",
            Self::IndexUnknown { .. } => "index_unknown",
            Self::ValuesTwice { .. } => "values_twice",
            Self::CountWrong { .. } => "count_wrong",
            Self::CollectionMissing { .. } => "collection_missing",
            Self::ReverseMissing { .. } => "reverse_missing",
            Self::EntryMissing { .. } => "entry_missing",
            Self::ReverseStray { .. } => "reverse_stray",
            Self::TargetMissing { .. } => "target_missing",
            Self::StagedMissing { .. } => "staged_missing",
            Self::StagedSize { .. } => "staged_size",
            Self::TransactionContradictory { .. } => "transaction_contradictory",
            Self::MixedOutcome { .. } => "mixed_outcome",
            Self::MarkContradictory { .. } => "mark_contradictory",
        }
    }

    /// How bad it is.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::TargetMissing { .. } => Severity::Dangling,
            _ => Severity::Damage,
        }
    }

    /// What can be done about it.
    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::ExtentMissing { .. }
            | Self::ExtentStray { .. }
            | Self::IndexEntryMissing { .. }
            | Self::IndexEntryStray { .. }
            | Self::IndexUnknown { .. }
            | Self::CountWrong { .. }
            | Self::ReverseMissing { .. }
            | Self::ReverseStray { .. }
            | Self::PageNotReserved { .. }
            | Self::StagedMissing { .. } => Remedy::Lossless,
            // The bytes may be all that is left of an object; the outcome is all that tells of a lost part.
            Self::ContentUnnamed { .. } | Self::MixedOutcome { .. } => Remedy::Loses,
            Self::CollectionMissing { .. } | Self::EntryMissing { .. } => Remedy::Transaction,
            _ => Remedy::None,
        }
    }

    /// The logical node.
    pub(crate) fn node(&self) -> NodeId {
        match self {
            Self::RowDamaged { node, .. }
            | Self::TransactionContradictory { node, .. }
            | Self::MixedOutcome { node, .. }
            | Self::MarkContradictory { node, .. } => *node,
            Self::PositionNotReserved { page, .. } => page.node,
            Self::ContentUnnamed { content, .. }
            | Self::ContentDamaged { content, .. }
            | Self::StagedMissing { content }
            | Self::StagedSize { content, .. } => content.node(),
            Self::IndexEntryStray { index, .. } | Self::IndexUnknown { index, .. } => index.node,
            other => other.object().map_or(NodeId(0), |oid| oid.page().node),
        }
    }

    /// The object that a user knows by name and that the problem is about.
    pub(crate) fn object(&self) -> Option<Oid> {
        match self {
            Self::ObjectDamaged { oid, .. }
            | Self::HeadMissing { oid }
            | Self::PageNotReserved { oid, .. }
            | Self::ContentMissing { oid, .. }
            | Self::ContentSize { oid, .. }
            | Self::ContentForeign { oid, .. }
            | Self::ContentShared { oid, .. }
            | Self::ExtentMissing { oid }
            | Self::ExtentStray { oid }
            | Self::IndexEntryMissing { oid, .. }
            | Self::ValuesTwice { oid, .. } => Some(*oid),
            Self::IndexEntryStray { object, .. } => *object,
            Self::CountWrong { collection, .. } | Self::CollectionMissing { collection, .. } => Some(*collection),
            Self::ReverseMissing { entry, .. }
            | Self::EntryMissing { entry, .. }
            | Self::ReverseStray { entry, .. }
            | Self::TargetMissing { entry, .. } => Some(entry.collection),
            Self::RowDamaged { .. }
            | Self::PositionNotReserved { .. }
            | Self::ContentUnnamed { .. }
            | Self::ContentDamaged { .. }
            | Self::IndexUnknown { .. }
            | Self::StagedMissing { .. }
            | Self::StagedSize { .. }
            | Self::TransactionContradictory { .. }
            | Self::MixedOutcome { .. }
            | Self::MarkContradictory { .. } => None,
        }
    }
}

/// The key of an entry as a user reads it.
fn key(entry: &Entry) -> String {
    match entry.key.to_name() {
        Some(name) => format!("{name:?}"),
        None => format!("{:02x?}", entry.key.as_bytes()),
    }
}

/// Without the [object](Problem::object), which callers write before it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RowDamaged { node, what, .. } => write!(f, "logical node {:x}: {what}", node.0),
            Self::ObjectDamaged { what, .. } => f.write_str(what),
            Self::HeadMissing { .. } => f.write_str("its page has no head, so its slot counts as free"),
            Self::PositionNotReserved { page, position, limit } => write!(
                f,
                "page {:x} of logical node {:x} has the version {position}, and positions are reserved up to {limit} only",
                page.number, page.node.0
            ),
            Self::PageNotReserved { next, .. } => {
                write!(f, "its page was never reserved: new objects may replace it; the next new page is {next:x}")
            }
            Self::ContentDamaged { what, .. } => f.write_str(what),
            Self::ContentMissing { content, .. } => {
                write!(f, "its content {content} does not exist: its bytes are lost")
            }
            Self::ContentSize { content, size, found, .. } => {
                write!(f, "it has {size} bytes, and its content {content} has {found}")
            }
            Self::ContentForeign { content, .. } => {
                write!(f, "its content {content} is of another space or logical node")
            }
            Self::ContentShared { content, other, .. } => {
                write!(f, "its content {content} is that of object {other}, too")
            }
            Self::ContentUnnamed { content, size } => {
                write!(f, "content {content} of {size} bytes: no object has it, and no upload")
            }
            Self::ExtentMissing { .. } => f.write_str("the extent of its class does not have it: queries miss it"),
            Self::ExtentStray { .. } => {
                f.write_str("the extent of its class has it, and it does not exist, or is of another class")
            }
            Self::IndexEntryMissing { index, .. } => write!(f, "{index} does not have it: queries miss it"),
            Self::IndexEntryStray { index, object: Some(_), .. } => {
                write!(f, "{index} has it with other values than its own")
            }
            Self::IndexEntryStray { index, object: None, page, slot, .. } => {
                write!(f, "{index} has an entry for slot {slot:x} of page {:x}, where no object is", page.number)
            }
            Self::IndexUnknown { index, .. } => write!(f, "{index} has entries and does not exist"),
            Self::ValuesTwice { other, index, .. } => {
                write!(f, "it has the same values in the unique {index} as object {other}")
            }
            Self::CountWrong { counted, found, .. } => write!(f, "it counts {counted} entries and has {found}"),
            Self::CollectionMissing { entries, .. } => {
                write!(f, "it does not exist, or is no collection, and has {entries} entries")
            }
            Self::ReverseMissing { entry, target } => {
                write!(f, "its entry {} is not found from its target {target}", key(entry))
            }
            Self::EntryMissing { entry, target } => {
                write!(f, "its entry {} is lost, and object {target} says that it is its target", key(entry))
            }
            Self::ReverseStray { entry, target } => {
                write!(
                    f,
                    "object {target} says that it is the target of the entry {}, which does not lead to it",
                    key(entry)
                )
            }
            Self::TargetMissing { entry, target } => {
                write!(f, "its entry {} leads to object {target}, which does not exist", key(entry))
            }
            Self::StagedMissing { content } => write!(f, "content {content} is marked as uploaded, and does not exist"),
            Self::StagedSize { content, size, found } => {
                write!(f, "content {content} is marked as an upload of {size} bytes, and has {found}")
            }
            Self::TransactionContradictory { node, txn, what } => {
                write!(f, "transaction {txn:?} at logical node {:x}: {what}", node.0)
            }
            Self::MixedOutcome { txn, mixed: MixedOutcome { committed, aborted }, .. } => {
                write!(
                    f,
                    "transaction {txn:?} is committed at logical node {:x} and aborted at {:x}: its part there is lost",
                    committed.0, aborted.0
                )
            }
            Self::MarkContradictory { node, client } => {
                write!(f, "what client {client:?} has heard at logical node {:x} is the mark of another client", node.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{ClassId, SpaceId};

    use super::*;

    #[test]
    fn a_stray_index_entry_names_an_object_only_if_there_is_one() {
        let (node, space) = (NodeId(3), SpaceId(1));
        let page = PageId { space, node, number: 0x2a };
        let index = IndexId { node, space, index: 7 };
        let stray = |object| Problem::IndexEntryStray { index, object, page, slot: 0x11, row: Vec::new() };
        let oid = Oid::new(ClassId(5), page, 0x11);
        assert_eq!((stray(Some(oid)).object(), stray(Some(oid)).node()), (Some(oid), node));
        let missing = stray(None);
        assert_eq!((missing.object(), missing.node()), (None, node));
        assert!(missing.to_string().contains("slot 11 of page 2a"), "{missing}");
    }
}
