//! Identifiers of contents and uploads.

use std::fmt;

use crate::{NodeId, SpaceId};

/// The identifier of a content: of the bytes of an object that stand beside its page. It is never used again.
///
/// A brick makes it from the space, the logical node, its move count, and a number that is unique at that brick. Only an object of
/// the space can have the content:
///
/// ```text
///  127    126..103   102..80   79        78..64    63..0
/// +---+------------+---------+--------+---------+--------+
/// | 0 |    node    |  moves  | origin |  space  | number |
/// | 1 |     24     |   23    |   1    |   15    |   64   |
/// +---+------------+---------+--------+---------+--------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContentId(pub u128);

/// The identifier of an upload: of bytes that are staged in a store before the change that makes a content of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub u64);

/// What a number of a content is unique among, at one brick and for one move count of a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentOrigin {
    /// The contents that transactions write: the number is a position of the log of the logical node and a place in its record.
    Record,
    /// The contents that are uploaded: the number is that of the upload.
    Upload,
}

impl ContentId {
    /// The largest move count that fits.
    pub const MAX_MOVES: u32 = (1 << 23) - 1;

    /// The identifier of a content of a space at a logical node.
    ///
    /// # Panics
    /// If `space`, `node` or `moves` does not fit its bits.
    #[must_use]
    pub fn new(space: SpaceId, node: NodeId, moves: u32, origin: ContentOrigin, number: u64) -> Self {
        assert!(space <= SpaceId::MAX, "space {} is over 15 bits", space.0);
        assert!(node <= NodeId::MAX, "node {} is over 24 bits", node.0);
        assert!(moves <= Self::MAX_MOVES, "move count {moves} is over 23 bits");
        let origin = match origin {
            ContentOrigin::Record => 0_u128,
            ContentOrigin::Upload => 1,
        };
        let place = u128::from(node.0) << 103 | u128::from(moves) << 80 | origin << 79;
        Self(place | u128::from(space.0) << 64 | u128::from(number))
    }

    /// The space.
    #[must_use]
    pub const fn space(self) -> SpaceId {
        SpaceId((self.0 >> 64) as u16 & SpaceId::MAX.0)
    }

    /// The logical node.
    #[must_use]
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> 103) as u32 & NodeId::MAX.0)
    }

    /// The move count.
    #[must_use]
    pub const fn moves(self) -> u32 {
        (self.0 >> 80) as u32 & Self::MAX_MOVES
    }

    /// What the number is unique among.
    #[must_use]
    pub const fn origin(self) -> ContentOrigin {
        if self.0 >> 79 & 1 == 0 { ContentOrigin::Record } else { ContentOrigin::Upload }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 as u64
    }

    /// The least identifier of a logical node, and the one above the greatest.
    #[must_use]
    pub fn range_of(node: NodeId) -> (Self, Self) {
        (Self(u128::from(node.0) << 103), Self((u128::from(node.0) + 1) << 103))
    }
}

/// The hexadecimal form.
impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_identifiers_do_not_overlap() {
        let id = ContentId::new(SpaceId::MAX, NodeId::MAX, ContentId::MAX_MOVES, ContentOrigin::Upload, u64::MAX);
        assert_eq!((id.space(), id.node()), (SpaceId::MAX, NodeId::MAX));
        assert_eq!(ContentId::new(SpaceId(5), NodeId::MAX, 1, ContentOrigin::Upload, u64::MAX).space(), SpaceId(5));
        assert_eq!(id.0 >> 127, 0, "the first bit is never set");
        let others = [
            ContentId::new(SpaceId(1), NodeId(1), 2, ContentOrigin::Record, 3),
            ContentId::new(SpaceId(2), NodeId(1), 2, ContentOrigin::Record, 3),
            ContentId::new(SpaceId(1), NodeId(1), 2, ContentOrigin::Upload, 3),
            ContentId::new(SpaceId(1), NodeId(1), 3, ContentOrigin::Record, 3),
            ContentId::new(SpaceId(1), NodeId(2), 2, ContentOrigin::Record, 3),
        ];
        let distinct: std::collections::BTreeSet<_> = others.into_iter().collect();
        assert_eq!(distinct.len(), others.len());
        let (first, end) = ContentId::range_of(NodeId(1));
        assert!(others[..4].iter().all(|id| (first..end).contains(id)) && !(first..end).contains(&others[4]));
    }
}
