//! Where the elements of an ordered collection live: computed, so nothing is looked up.
//!
//! A *spread* is laid out over a *spread group*, a list of logical nodes, each of which is served by its own replica group.
//! So a list of replica groups is what elements go round over (ADHOC, section 3 and figure 1). *Stripes* of so many elements
//! each go to one node after the other; elements are objects, or the bytes of a file. Where the bricks are is the map's
//! business: a spread stays where it is when its nodes move.
//!
//! ```text
//!   three nodes, stripes of two, beginning with the second node
//!   element   0 1   2 3   4 5   6 7   8
//!   node       1     2     0     1    2
//!   place     0 1   0 1   0 1   2 3   2
//! ```

use std::ops::Range;

use model::NodeId;

/// What a spread's key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    nodes: Vec<NodeId>,
    stripe: u64,
    begin: usize,
}

/// Where an element lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ElementLocation {
    /// The logical node.
    pub node: NodeId,
    /// Its place among the elements of the spread on that node: they have no gaps.
    pub index: u64,
}

/// A part of a range that lies together on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// The logical node.
    pub node: NodeId,
    /// The places on it.
    pub indexes: Range<u64>,
    /// The elements.
    pub elements: Range<u64>,
}

impl Spread {
    /// A spread over a group of nodes, with stripes of so many elements. `begin` is anything that differs between spreads:
    /// it says with which node the first stripe begins, so that short spreads do not all meet on one node.
    ///
    /// `None` if there is no node, one is named twice, or a stripe is empty.
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

    /// Where an element lives.
    #[must_use]
    pub fn locate(&self, element: u64) -> ElementLocation {
        let (stripe, within) = (element / self.stripe, element % self.stripe);
        let count = self.nodes.len() as u64;
        // Both are below the number of nodes.
        let index = (self.begin + (stripe % count) as usize) % self.nodes.len();
        ElementLocation { node: self.nodes[index], index: (stripe / count) * self.stripe + within }
    }

    /// Which element lives at a place; `None` if the node is not in the group, or no element has such a place.
    #[must_use]
    pub fn element(&self, place: ElementLocation) -> Option<u64> {
        let turn = self.stripe_offset(place.node)?;
        let (round, within) = (place.index / self.stripe, place.index % self.stripe);
        let stripe = round.checked_mul(self.nodes.len() as u64)?.checked_add(turn)?;
        stripe.checked_mul(self.stripe)?.checked_add(within)
    }

    /// Which of the first stripes goes to a node.
    fn stripe_offset(&self, node: NodeId) -> Option<u64> {
        let index = self.nodes.iter().position(|other| *other == node)?;
        Some(((index + self.nodes.len() - self.begin) % self.nodes.len()) as u64)
    }

    /// How many of the first `length` elements live on a node.
    #[must_use]
    pub fn count(&self, node: NodeId, length: u64) -> u64 {
        let Some(turn) = self.stripe_offset(node) else { return 0 };
        let (whole, rest, count) = (length / self.stripe, length % self.stripe, self.nodes.len() as u64);
        let rounds = whole / count + u64::from(turn < whole % count);
        rounds * self.stripe + if turn == whole % count { rest } else { 0 }
    }

    /// The pieces of a range of elements, in their order. They are made as they are asked for: a range may be long.
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
    fn stripes_go_round_from_where_the_key_says() {
        let spread = Spread::new(vec![NodeId(0), NodeId(1), NodeId(2)], 2, 1).unwrap();
        let places: Vec<(u32, u64)> =
            (0..9).map(|at| spread.locate(at)).map(|place| (place.node.0, place.index)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (2, 0), (2, 1), (0, 0), (0, 1), (1, 2), (1, 3), (2, 2)]);
    }

    #[test]
    fn what_makes_no_sense_is_no_spread() {
        assert_eq!(Spread::new(Vec::new(), 1, 0), None);
        assert_eq!(Spread::new(vec![NodeId(1), NodeId(1)], 1, 0), None);
        assert_eq!(Spread::new(vec![NodeId(1)], 0, 0), None);
    }

    #[test]
    fn the_last_element_that_can_be_has_a_place() {
        let spread = Spread::new(vec![NodeId(4), NodeId(5)], 3, 7).unwrap();
        assert_eq!(spread.element(spread.locate(u64::MAX)), Some(u64::MAX));
        assert_eq!(spread.element(ElementLocation { node: NodeId(5), index: u64::MAX }), None);
    }

    proptest! {
        #[test]
        fn every_element_has_a_place_of_its_own_and_is_found_there(spread in spreads(), length in 1..200_u64) {
            let places: BTreeSet<ElementLocation> = (0..length).map(|element| spread.locate(element)).collect();
            prop_assert_eq!(places.len() as u64, length);
            for element in 0..length {
                prop_assert_eq!(spread.element(spread.locate(element)), Some(element));
            }
        }

        #[test]
        fn nodes_have_equally_many_within_one_stripe_and_no_gaps(spread in spreads(), length in 0..200_u64) {
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
        fn a_range_touches_the_nodes_of_its_elements_and_no_others(spread in spreads(), start in 0..100_u64, length in 0..100_u64) {
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
