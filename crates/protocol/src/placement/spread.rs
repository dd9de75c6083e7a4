//! Computes the locations of the elements of an ordered collection, without a lookup.
//!
//! A *spread* distributes elements over a *spread group*: a list of logical nodes, each with its own replica group
//! (ADHOC, section 3 and figure 1). *Stripes* of a fixed number of elements are assigned to the nodes in turn. Elements
//! are objects, or the bytes of a file. Locations name logical nodes, not bricks, so they stay the same when nodes
//! move.
//!
//! ```text
//!   three nodes, stripes of two, beginning with the second node
//!   element   0 1   2 3   4 5   6 7   8
//!   node       1     2     0     1    2
//!   place     0 1   0 1   0 1   2 3   2
//! ```

use std::ops::Range;

use model::NodeId;

/// The layout of a spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    nodes: Vec<NodeId>,
    stripe: u64,
    begin: usize,
}

/// The location of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ElementLocation {
    /// The logical node.
    pub node: NodeId,
    /// Its index among the elements of the spread on that node; the indexes have no gaps.
    pub index: u64,
}

/// A contiguous part of a range on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// The logical node.
    pub node: NodeId,
    /// The indexes on it.
    pub indexes: Range<u64>,
    /// The elements.
    pub elements: Range<u64>,
}

impl Spread {
    /// A spread over a group of nodes, with stripes of `stripe` elements. `begin` is any number that differs between
    /// spreads. It determines the node of the first stripe, so that short spreads are not all on one node.
    ///
    /// `None` if there are no nodes, a node occurs twice, or a stripe is empty.
    #[must_use]
    pub fn new(nodes: Vec<NodeId>, stripe: u64, begin: u64) -> Option<Self> {
        let mut sorted = nodes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if nodes.is_empty() || sorted.len() != nodes.len() || stripe == 0 {
            return None;
        }
        let begin = usize::try_from(begin % nodes.len() as u64).ok()?;
        Some(Self { nodes, stripe, begin })
    }

    /// The location of an element.
    #[must_use]
    pub fn locate(&self, element: u64) -> ElementLocation {
        let (stripe, within) = (element / self.stripe, element % self.stripe);
        let count = self.nodes.len() as u64;
        // Both are below the number of nodes.
        let index = (self.begin + (stripe % count) as usize) % self.nodes.len();
        ElementLocation { node: self.nodes[index], index: (stripe / count) * self.stripe + within }
    }

    /// The element at a location; `None` if the node is not in the group, or no element has this location.
    #[must_use]
    pub fn element(&self, place: ElementLocation) -> Option<u64> {
        let turn = self.stripe_offset(place.node)?;
        let (round, within) = (place.index / self.stripe, place.index % self.stripe);
        let stripe = round.checked_mul(self.nodes.len() as u64)?.checked_add(turn)?;
        stripe.checked_mul(self.stripe)?.checked_add(within)
    }

    /// The number of the first stripe on a node.
    fn stripe_offset(&self, node: NodeId) -> Option<u64> {
        let index = self.nodes.iter().position(|other| *other == node)?;
        Some(((index + self.nodes.len() - self.begin) % self.nodes.len()) as u64)
    }

    /// How many of the first `length` elements are on a node.
    #[must_use]
    pub fn count(&self, node: NodeId, length: u64) -> u64 {
        let Some(turn) = self.stripe_offset(node) else { return 0 };
        let (whole, rest, count) = (length / self.stripe, length % self.stripe, self.nodes.len() as u64);
        let rounds = whole / count + u64::from(turn < whole % count);
        rounds * self.stripe + if turn == whole % count { rest } else { 0 }
    }

    /// The pieces of a range of elements, in order. They are computed lazily, because a range may be long.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = NodeRange> {
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            let place = self.locate(next);
            let left = self.stripe - next % self.stripe;
            let count = left.min(range.end - next);
            let elements = next..next + count;
            next += count;
            Some(NodeRange { node: place.node, indexes: place.index..place.index + count, elements })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn spreads() -> impl Strategy<Value = Spread> {
        (1..9_u32, 1..7_u64, any::<u64>()).prop_map(|(nodes, stripe, begin)| {
            Spread::new((0..nodes).map(|node| NodeId(node * 3 + 1)).collect(), stripe, begin).unwrap()
        })
    }

    #[test]
    fn stripes_are_assigned_in_turn_from_the_first_node() {
        let spread = Spread::new(vec![NodeId(0), NodeId(1), NodeId(2)], 2, 1).unwrap();
        let places: Vec<(u32, u64)> =
            (0..9).map(|at| spread.locate(at)).map(|place| (place.node.0, place.index)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (2, 0), (2, 1), (0, 0), (0, 1), (1, 2), (1, 3), (2, 2)]);
    }

    #[test]
    fn invalid_spreads_are_refused() {
        assert_eq!(Spread::new(Vec::new(), 1, 0), None);
        assert_eq!(Spread::new(vec![NodeId(1), NodeId(1)], 1, 0), None);
        assert_eq!(Spread::new(vec![NodeId(1)], 0, 0), None);
    }

    #[test]
    fn largest_element_has_a_location() {
        let spread = Spread::new(vec![NodeId(4), NodeId(5)], 3, 7).unwrap();
        assert_eq!(spread.element(spread.locate(u64::MAX)), Some(u64::MAX));
        assert_eq!(spread.element(ElementLocation { node: NodeId(5), index: u64::MAX }), None);
    }

    proptest! {
        #[test]
        fn every_element_has_a_distinct_location(spread in spreads(), length in 1..200_u64) {
            let places: BTreeSet<ElementLocation> = (0..length).map(|element| spread.locate(element)).collect();
            prop_assert_eq!(places.len() as u64, length);
            for element in 0..length {
                prop_assert_eq!(spread.element(spread.locate(element)), Some(element));
            }
        }

        #[test]
        fn nodes_have_equal_numbers_within_one_stripe_without_gaps(spread in spreads(), length in 0..200_u64) {
            let mut counts = Vec::new();
            for node in &spread.nodes {
                let mut at: Vec<u64> =
                    (0..length).map(|element| spread.locate(element)).filter(|place| place.node == *node).map(|place| place.index).collect();
                at.sort_unstable();
                prop_assert_eq!(&at, &(0..at.len() as u64).collect::<Vec<_>>());
                prop_assert_eq!(at.len() as u64, spread.count(*node, length));
                counts.push(at.len() as u64);
            }
            let (most, least) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
            prop_assert!(most - least <= spread.stripe, "{counts:?}");
        }

        #[test]
        fn pieces_of_a_range_cover_exactly_its_elements(spread in spreads(), start in 0..100_u64, length in 0..100_u64) {
            let mut next = start;
            for piece in spread.pieces(start..start + length) {
                prop_assert_eq!(piece.elements.start, next);
                prop_assert!(!piece.elements.is_empty());
                for (element, index) in piece.elements.clone().zip(piece.indexes.clone()) {
                    prop_assert_eq!(spread.locate(element), ElementLocation { node: piece.node, index });
                }
                prop_assert_eq!(piece.elements.end - piece.elements.start, piece.indexes.end - piece.indexes.start);
                next = piece.elements.end;
            }
            prop_assert_eq!(next, start + length);
        }
    }
}
