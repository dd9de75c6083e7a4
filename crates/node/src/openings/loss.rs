//! How an operator goes on with a brick whose directory went back in time.
//!
//! What was forced after the position of the directory is lost. So that nothing that exists elsewhere is taken for the new state:
//!
//! 1. The move count of each logical node of the brick rises, so every copy in a cache is fetched again.
//! 2. Page numbers are skipped, so no identifier that was given after the position is given again. This holds for logical nodes that had none at the
//!    position, too: their first ones may have been given after it.
//! 3. The horizon rises to the time of the cluster: a transaction that began before is refused as too old if nothing is known of it.
//! 4. The history begins with a new opening that is not compared with earlier witnesses.
//! 5. The bound of promises (V4) rises above that time: what was promised shortly before may be lost, too.
//! 6. Moves of logical nodes from or to the brick are cancelled: what the directory has of a copy may be older than the other brick believes,
//!    and the copy of a node of the brick may have what the node has lost.
//! 7. A logical node that was never opened by the position counts as opened before: it may have been served after it, so its next start waits for the leases of
//!    earlier holders.
//!
//! Before all this, the records of transactions of the brick are compared with those of its partners ([`Partners`]). Afterwards every participant refuses
//! a lost transaction as too old, and that answer does not distinguish lost transactions from forgotten ones.
//!
//! The same holds for a brick of which a repair gave up rows or transactions; see [`lost_rows`](super::lost_rows) for the former.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use meta::catalog::{BrickId, CatalogEditor, CatalogError, NodePlacement};
use meta::opening::{Opening, OpeningHistory, OpeningRecord, Subject, WitnessedPosition};
use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use protocol::clock::LEAD_MS;
use protocol::commit::Record;
use protocol::ident::{HlcTimestamp, Version};
use store::{KeyRange, Loss, RowChanges, Store};
use wire::cluster::{decode_record, encode_record};

use super::asking::{Asked, Question, ask_all, members};
use super::lost_rows::{DamagedNode, free_page};
use super::partners::Partners;
use super::{WitnessTable, kept_rows, witnessed_from_proto};
use crate::auth::ClusterCredentials;
use crate::brick::page_rows;
use crate::cluster_view::ClusterView;
use crate::member::stored_brick;

/// Page numbers of each space and logical node that are skipped.
const SKIPPED_PAGES: u64 = 1 << 32;

/// What a process saw of the brick's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessReport {
    /// The process: "peer server 2 at 127.0.0.1:6678".
    pub witness: String,
    /// What it saw.
    pub seen: WitnessedPosition,
}

/// What is lost if a brick goes on with its directory as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickLoss {
    /// The brick.
    pub brick: BrickId,
    /// The last position of its log.
    pub position: u64,
    /// The last opening of its log.
    pub last: Option<Opening>,
    /// What the catalogue knows.
    pub known: Option<OpeningRecord>,
    /// What other processes saw, as far as they answer.
    pub witnesses: Vec<WitnessReport>,
    /// The logical nodes that the brick serves, and their spaces.
    pub nodes: Vec<(NodeId, Option<SpaceId>)>,
    /// The logical nodes that move from or to the brick.
    pub moving: Vec<NodeId>,
    /// What a repair gave up.
    pub given_up: Option<Loss>,
    /// Which transactions the brick and its partners know differently.
    pub partners: Partners,
    history: OpeningHistory,
    /// The time of the cluster in milliseconds since 1970; `None` if the store was restored from an archive.
    time_ms: Option<u64>,
}

impl BrickLoss {
    /// Determines the loss. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if another process serves the brick; [`ErrorKind::Unavailable`] if the clock of this process is wrong or was
    /// not compared; those of the catalogue and the store.
    pub async fn examine(
        view: &Arc<ClusterView>,
        store: &Store,
        brick: BrickId,
        credentials: &ClusterCredentials,
    ) -> Result<Self> {
        view.clock.check()?;
        let time_ms = Some(view.clock.time_ms());
        let history = kept_rows::history(store)?;
        let known = view.editor()?.opening(brick).await?;
        let catalog = view.catalog().unwrap_or_default();
        let mut witnesses = Vec::new();
        let mut partners = Partners::of(&catalog, store, brick)?;
        let question = Question { transactions: Some(partners.question()), ..Question::seen_of(brick) };
        for (member, asked) in ask_all(members(&catalog, brick), credentials, question).await {
            match asked {
                Asked::Saw(mut seen) => {
                    if let Some((other, known)) = member.brick.zip(seen.transactions.take()) {
                        partners.add_answer(other, known)?;
                    }
                    for seen in seen.seen.iter().filter(|seen| seen.brick == brick.0) {
                        let (_, seen) = witnessed_from_proto(seen)?;
                        witnesses.push(WitnessReport { witness: member.name.clone(), seen });
                    }
                }
                Asked::IsTheBrick => {
                    let what = format!("{} serves now: there is nothing to accept", member.name);
                    return Err(Error::new(ErrorKind::Invalid, what));
                }
                Asked::Ended | Asked::Silent => {}
            }
        }
        let placed = || catalog.placement_map().nodes();
        let of_brick = placed().filter(|(_, placed)| placed.brick == brick);
        let space = |node| catalog.space_of(node).map(|space| space.id);
        let nodes = of_brick.map(|(node, _)| (node, space(node))).collect();
        let concerned = |placed: &NodePlacement| placed.brick == brick || placed.destination() == brick;
        let moving = placed().filter(|(_, placed)| placed.moving.is_some() && concerned(placed));
        let moving = moving.map(|(node, _)| node).collect();
        let (position, last, given_up) = (store.position(), history.last(), store.loss()?);
        Ok(Self { brick, position, last, known, witnesses, nodes, moving, given_up, partners, history, time_ms })
    }

    /// Adds what another brick, which does not run, keeps in its store of the brick's log and of transactions.
    ///
    /// # Errors
    /// If the rows of that store cannot be read.
    pub fn add_kept(&mut self, other: &Store) -> Result<()> {
        let (kept, name) = (WitnessTable::new(), stored_brick(other)?);
        kept.add_kept(other)?;
        if let Some(brick) = name {
            self.partners.add_store(brick, other)?;
        }
        let witness = name.map_or_else(|| "another brick".to_owned(), |brick| format!("brick {brick}"));
        let seen = kept.of(Subject::Brick(self.brick.0)).into_iter();
        self.witnesses.extend(seen.map(|seen| WitnessReport { witness: witness.clone(), seen }));
        Ok(())
    }

    /// The loss of a brick whose store was restored from an archive: copies, witnesses and transactions of the former cluster do not count.
    ///
    /// # Errors
    /// Those of the catalogue and the store.
    pub async fn of_copy(editor: &CatalogEditor, store: &Store, brick: BrickId, nodes: Vec<NodeId>) -> Result<Self> {
        let history = kept_rows::history(store)?;
        let (known, position) = (editor.opening(brick).await?, store.position());
        let (last, witnesses, given_up, time_ms) = (history.last(), Vec::new(), None, None);
        let partners = Partners::default();
        let nodes = nodes.into_iter().map(|node| (node, None)).collect();
        let moving = Vec::new();
        Ok(Self { brick, position, last, known, witnesses, nodes, moving, given_up, partners, history, time_ms })
    }

    /// The highest position of the log that is known under an opening that the directory has or lacks.
    #[must_use]
    pub fn highest_position(&self) -> u64 {
        let recorded = self.known.map_or(0, |known| known.position);
        self.witnesses.iter().map(|one| one.seen.forced.position).fold(recorded.max(self.position), u64::max)
    }

    /// Whether anything shows that the directory went back in time.
    #[must_use]
    pub fn is_any(&self) -> bool {
        let base = self.known.and_then(|known| known.base);
        let is_last =
            self.last == base || self.last.is_some() && self.last == self.known.and_then(|known| known.claimed);
        !is_last || self.highest_position() > self.position || self.given_up.is_some()
    }

    /// Accepts the loss: the next start of the brick serves what the directory has.
    ///
    /// If it fails or is interrupted, it can be repeated.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the brick was opened elsewhere meanwhile; those of the catalogue and the store.
    pub async fn accept(&self, editor: &CatalogEditor, store: &Store) -> Result<Opening> {
        let others = self.known.into_iter().flat_map(|known| [known.base, known.claimed]).flatten();
        let seen = self.witnesses.iter().map(|one| one.seen.forced.opening);
        let openings: Vec<Opening> = others.chain(seen).collect();
        let history = self.history.accept_loss(&openings, self.position, rand::random());
        let opening = history.last().ok_or_else(|| Error::new(ErrorKind::Internal, "a history without an opening"))?;
        for node in &self.moving {
            match editor.cancel_move(*node).await {
                // It was cancelled before, or has ended: then the node counts no loss here.
                Ok(_) | Err(CatalogError::WrongMoveState { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut moves = Vec::with_capacity(self.nodes.len());
        for (node, _) in &self.nodes {
            moves.push(editor.count_loss(*node, self.brick).await?.value.moves);
        }
        let claimed = OpeningRecord { base: self.last, claimed: Some(opening), position: 0 };
        if !editor.replace_opening(self.brick, self.known, claimed).await?.value {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the brick was opened elsewhere meanwhile: examine it again",
            ));
        }
        self.mend_nodes(store, &moves)?;
        self.commit_rows(store, &history)?;
        store.accept_loss()?;
        Ok(opening)
    }

    /// The keys of rows that a repair gave up.
    fn lost_rows(&self) -> &[KeyRange] {
        self.given_up.as_ref().map_or(&[], |given_up| &given_up.rows)
    }

    /// Writes what the logical nodes need if rows are lost, apart from the page numbers.
    fn mend_nodes(&self, store: &Store, moves: &[u32]) -> Result<()> {
        let lost = self.lost_rows();
        if lost.is_empty() {
            return Ok(());
        }
        let time = HlcTimestamp::at(self.time_ms.unwrap_or(0));
        for ((node, _), moves) in self.nodes.iter().zip(moves) {
            DamagedNode { node: *node, moves: *moves, time }.mend(store, lost)?;
        }
        Ok(())
    }

    /// The bound of promises of a logical node; `None` if it need not change.
    fn bound(&self, store: &Store, node: NodeId) -> Result<Option<HlcTimestamp>> {
        let Some(time_ms) = self.time_ms else { return Ok(None) };
        let known = time_of(store, &page_rows::bound_key(node))?;
        // A brick raises it at most so far ahead (L2).
        Ok(Some(HlcTimestamp::at(time_ms + LEAD_MS).max(known)))
    }

    /// The horizon of a logical node, which only rises. Of a restored store it is the time up to which its log promised something: no clock is needed
    /// to know that, and what began later in the former cluster is new to this one.
    fn horizon(&self, store: &Store, node: NodeId) -> Result<HlcTimestamp> {
        let known = time_of(store, &page_rows::horizon_key(node))?;
        match self.time_ms {
            Some(time_ms) => Ok(known.max(HlcTimestamp::at(time_ms))),
            None => Ok(known.max(time_of(store, &page_rows::bound_key(node))?)),
        }
    }

    fn commit_rows(&self, store: &Store, history: &OpeningHistory) -> Result<()> {
        let mut changes = RowChanges::new();
        let has_lost_rows = !self.lost_rows().is_empty();
        for (node, space) in &self.nodes {
            // No positions of the logical node: one above its limit would not be the last one that its writer knows (L1).
            let horizon = self.horizon(store, *node)?;
            changes.put(&page_rows::horizon_key(*node), encode_record(&Record::Horizon(horizon), Version::ZERO));
            if let Some(bound) = self.bound(store, *node)? {
                changes.put(&page_rows::bound_key(*node), encode_record(&Record::Bound(bound), Version::ZERO));
            }
            let limit = page_rows::limit_key(*node);
            // Holders of a store that was restored from an archive do not count.
            if self.time_ms.is_some() && store.row(&limit)?.is_none() {
                changes.put(&limit, page_rows::encode_number(0));
            }
            for (space, next) in free_pages(store, *node, *space, has_lost_rows)? {
                changes.put(
                    &page_rows::free_key(*node, space),
                    page_rows::encode_number(next.saturating_add(SKIPPED_PAGES)),
                );
            }
        }
        kept_rows::put_history(&mut changes, history);
        store.commit_rows(changes).map(drop)
    }
}

/// The time in the row of a bound or a horizon.
fn time_of(store: &Store, key: &[u8]) -> Result<HlcTimestamp> {
    let Some(row) = store.row(key)? else { return Ok(HlcTimestamp::ZERO) };
    match decode_record(&row)? {
        (_, Record::Horizon(time) | Record::Bound(time)) => Ok(time),
        _ => Ok(HlcTimestamp::ZERO),
    }
}

/// The first page number of each space that was never reserved at a logical node, as far as rows tell; those of its space, if it is known, also if no row does.
/// If the node has lost rows, the pages that are left count, too, because the row with the number may be lost.
fn free_pages(
    store: &Store,
    node: NodeId,
    space: Option<SpaceId>,
    has_lost_rows: bool,
) -> Result<BTreeMap<SpaceId, u64>> {
    let mut free = BTreeMap::new();
    let (from, to) = page_rows::free_range(node);
    store.rows(&from, &to, |key, value| {
        if let (Ok(next), Some(space)) = (<[u8; 8]>::try_from(value), key.last_chunk()) {
            free.insert(SpaceId(u16::from_be_bytes(*space)), u64::from_be_bytes(next));
        }
        ControlFlow::Continue(())
    })?;
    if let Some(space) = space {
        let next = free.entry(space).or_default();
        if has_lost_rows {
            *next = free_page(store, node, space)?.max(*next);
        }
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use model::PageId;
    use store::Options;

    use super::*;

    const NODE: NodeId = NodeId(3);

    fn loss(space: Option<SpaceId>, given_up: Option<Loss>, time_ms: Option<u64>) -> BrickLoss {
        BrickLoss {
            brick: BrickId(1),
            position: 0,
            last: None,
            known: None,
            witnesses: Vec::new(),
            nodes: vec![(NODE, space)],
            moving: Vec::new(),
            given_up,
            partners: Partners::default(),
            history: OpeningHistory::default(),
            time_ms,
        }
    }

    /// The node was opened, and gave its first page numbers, after the directory was copied.
    #[test]
    fn page_numbers_of_a_node_of_which_the_directory_has_nothing_are_not_given_again() {
        let number = |store: &Store, key: &[u8]| {
            store.row(key).unwrap().map(|row| u64::from_be_bytes(row[..].try_into().unwrap()))
        };
        let (free, limit) = (page_rows::free_key(NODE, SpaceId(1)), page_rows::limit_key(NODE));
        let store = Store::in_memory(Options::default()).unwrap();
        let accepted = loss(Some(SpaceId(1)), None, Some(9));
        accepted.commit_rows(&store, &accepted.history).unwrap();
        assert_eq!((number(&store, &free), number(&store, &limit)), (Some(SKIPPED_PAGES), Some(0)));
        // It is accepted again, and the node has used positions.
        let mut changes = RowChanges::new();
        changes.put(&limit, page_rows::encode_number(7));
        store.commit_rows(changes).unwrap();
        accepted.commit_rows(&store, &accepted.history).unwrap();
        assert_eq!((number(&store, &free), number(&store, &limit)), (Some(2 * SKIPPED_PAGES), Some(7)));
        // Nothing that exists elsewhere counts for a store that was restored from an archive.
        let store = Store::in_memory(Options::default()).unwrap();
        let accepted = loss(None, None, None);
        accepted.commit_rows(&store, &accepted.history).unwrap();
        assert_eq!((number(&store, &free), number(&store, &limit)), (None, None));
    }

    #[test]
    fn pages_of_a_node_whose_space_is_unknown_are_mended() {
        let node = NODE;
        let page = PageId { space: SpaceId(1), node, number: 1 };
        let head = page_rows::Head { version: Version { moves: 7, position: 5 }, timestamp: HlcTimestamp(5) };
        let store = Store::in_memory(Options::default()).unwrap();
        let mut changes = RowChanges::new();
        changes.put(&page_rows::head_key(page), head.encode());
        store.commit_rows(changes).unwrap();
        let object = page_rows::object_key(page, 2);
        let given_up = Loss { kept: None, rows: vec![KeyRange::new(&object, Some(&page_rows::page_end(page)))] };
        let loss = loss(None, Some(given_up), Some(9));
        loss.mend_nodes(&store, &[8]).unwrap();
        let row = store.row(&page_rows::head_key(page)).unwrap().unwrap();
        assert_eq!(page_rows::Head::decode(page, &row).unwrap().version, Version { moves: 8, position: 0 });
    }
}
