//! Identifiers, times and versions, checked against their ranges.
//!
//! Times and positions are below 2^63 and milliseconds below 2^48, so that sums cannot overflow.

use model::{ClassId, Error, ErrorKind, NodeId, Oid, PageId, Result};
use protocol::ident::{ClientId, HlcTimestamp, TxnId, Version};
use protocol::lease::Ms;

use crate::convert::{self, invalid, missing};
use crate::proto;

/// Most participants of a transaction.
pub const MAX_PARTICIPANTS: usize = 4096;

/// The highest bit of times and positions, which is always 0.
const TOP_BIT: u64 = 1 << 63;
/// Bits of milliseconds.
const MS_BITS: u32 = 48;

impl From<TxnId> for proto::Txn {
    fn from(txn: TxnId) -> Self {
        Self { start: txn.start.0, client: txn.client.0 }
    }
}

impl From<Version> for proto::Version {
    fn from(version: Version) -> Self {
        Self { moves: version.moves, position: version.position }
    }
}

impl From<PageId> for proto::Page {
    fn from(page: PageId) -> Self {
        Self { space: u32::from(page.space.0), node: page.node.0, number: page.number }
    }
}

pub(super) fn timestamp(bits: u64) -> Result<HlcTimestamp> {
    if bits < TOP_BIT { Ok(HlcTimestamp(bits)) } else { Err(invalid(format!("{bits:#x} is not a valid timestamp"))) }
}

pub(super) fn txn(field: Option<proto::Txn>) -> Result<TxnId> {
    let field = field.ok_or_else(|| missing("transaction"))?;
    txn_from_parts(field.start, field.client)
}

pub(super) fn txn_from_parts(start: u64, client: u64) -> Result<TxnId> {
    Ok(TxnId { start: timestamp(start)?, client: ClientId(client) })
}

pub(super) fn version(field: Option<proto::Version>) -> Result<Version> {
    let field = field.ok_or_else(|| missing("version"))?;
    version_from_parts(field.moves, field.position)
}

pub(super) fn optional_version(field: Option<proto::Version>) -> Result<Option<Version>> {
    field.map(|field| version(Some(field))).transpose()
}

pub(super) fn version_from_parts(moves: u32, position: u64) -> Result<Version> {
    if position < TOP_BIT {
        Ok(Version { moves, position })
    } else {
        Err(invalid(format!("{position} is not a valid position")))
    }
}

pub(super) fn ms(ms: u64) -> Result<Ms> {
    if ms >> MS_BITS == 0 { Ok(ms) } else { Err(invalid(format!("{ms} milliseconds do not fit into {MS_BITS} bits"))) }
}

/// The logical node with this number.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it does not fit into 24 bits.
pub fn node(number: u32) -> Result<NodeId> {
    let node = NodeId(number);
    if node <= NodeId::MAX { Ok(node) } else { Err(invalid(format!("node {number} does not fit into 24 bits"))) }
}

pub(super) fn nodes(numbers: Vec<u32>) -> Result<Vec<NodeId>> {
    if numbers.len() > MAX_PARTICIPANTS {
        let found = numbers.len();
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("a transaction has {found} logical nodes; it may have {MAX_PARTICIPANTS}"),
        ));
    }
    numbers.into_iter().map(node).collect()
}

pub(super) fn numbers<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> Vec<u32> {
    nodes.into_iter().map(|node| node.0).collect()
}

pub(super) fn class(number: u32) -> Result<ClassId> {
    let class = ClassId(number);
    if class <= ClassId::MAX { Ok(class) } else { Err(invalid(format!("class {number} does not fit into 24 bits"))) }
}

pub(super) fn slot(number: u32) -> Result<u16> {
    u16::try_from(number).map_err(|_| invalid(format!("slot {number} does not fit into 16 bits")))
}

/// Decodes a page in a message about the pages of `node`.
pub(super) fn page(field: Option<proto::Page>, node: NodeId) -> Result<PageId> {
    let field = field.ok_or_else(|| missing("page"))?;
    if field.node != node.0 {
        return Err(invalid(format!("a message about node {1} names a page of node {0}", field.node, node.0)));
    }
    if field.number > PageId::MAX_NUMBER {
        return Err(invalid(format!("page {} does not fit into 48 bits", field.number)));
    }
    Ok(PageId { space: convert::space(field.space)?, node, number: field.number })
}

/// Checks that an identifier can be that of an object: it is neither temporary nor zero.
pub(super) fn permanent_oid(oid: Oid) -> Result<Oid> {
    if oid.is_temporary() || oid == Oid::MIN {
        return Err(invalid(format!("{oid} is not the identifier of a committed object")));
    }
    Ok(oid)
}

pub(super) fn oid(field: Option<proto::Oid>) -> Result<Oid> {
    permanent_oid(convert::oid(field, "object")?)
}

/// The identifier with these halves.
pub(super) fn oid_from_halves([high, low]: [u64; 2]) -> Result<Oid> {
    permanent_oid(proto::Oid { high, low }.into())
}
