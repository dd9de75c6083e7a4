//! How a brick opens: it checks, claims, announces, forces its history, and confirms. See [`meta::opening`].

use std::sync::Arc;
use std::time::Duration;

use meta::catalog::{BrickId, CatalogEditor};
use meta::opening::{LogState, Opening, OpeningHistory, OpeningProcedure, OpeningRefusal, OpeningStep, Subject};
use model::{Error, ErrorKind, Result};
use store::{RowChanges, Store};
use tokio::time::{self, Instant};
use tracing::{info, warn};
use wire::handshake::Witnessed;

use super::asking::{Asked, Member, Question, ask_all, members};
use super::kept_rows::{self, Counters};
use super::{LocalOpening, check_own_position, witnessed_from_proto};
use crate::auth::ClusterCredentials;
use crate::blocking;
use crate::cluster_view::ClusterView;

/// Pause between attempts to announce an opening to a process that does not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Opens a brick that may be served from then on.
///
/// # Errors
/// [`ErrorKind::Denied`] if its directory went back in time, a copy of it was opened elsewhere, or another process serves it: the
/// error says what is missing and who saw it. Others if the catalogue or the store cannot be used; then the call may be repeated.
pub async fn open_brick(
    view: &Arc<ClusterView>,
    store: &Store,
    brick: BrickId,
    credentials: &ClusterCredentials,
) -> Result<Arc<LocalOpening>> {
    let opener = Opener { view, store, brick, credentials, editor: view.editor()? };
    match opener.open().await {
        Err(Problem::Refused(refusal, witness)) => {
            let error = refusal.into_error(&format!("brick {brick}"), &witness);
            if let Err(unnoted) = opener.editor.record_refusal(brick, error.message()).await {
                warn!(error = %unnoted, "the catalogue cannot note why the brick is not served");
            }
            Err(error)
        }
        Err(Problem::Other(error)) => Err(error),
        Ok(own) => Ok(own),
    }
}

/// Why a brick was not opened.
enum Problem {
    /// The rules refuse it, because of what this witness knows.
    Refused(OpeningRefusal, String),
    Other(Error),
}

impl<E: Into<Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

struct Opener<'a> {
    view: &'a Arc<ClusterView>,
    store: &'a Store,
    brick: BrickId,
    credentials: &'a ClusterCredentials,
    editor: &'a CatalogEditor,
}

impl Opener<'_> {
    async fn open(&self) -> Result<Arc<LocalOpening>, Problem> {
        let counters = self.check_catalogue().await?;
        let position = self.store.position();
        let store = self.store.clone();
        let history = blocking::wait(move || kept_rows::history(&store)).await?;
        let by_catalogue = |refusal| Problem::Refused(refusal, "the catalogue says so".to_owned());
        let known = self.editor.opening(self.brick).await?;
        let begin = match self.editor.own_openings().await?.has_accepted_loss() {
            true => OpeningProcedure::begin_after_loss,
            false => OpeningProcedure::begin,
        };
        let store = self.store.clone();
        let has_lost = blocking::wait(move || store.loss()).await?.is_some();
        let log = LogState { position, has_lost };
        let mut opening = begin(&history, known, log, rand::random()).map_err(by_catalogue)?;
        loop {
            let is_replaced = match opening.step() {
                OpeningStep::Ask => {
                    self.ask_witnesses(&opening).await?;
                    true
                }
                OpeningStep::Claim { from, to } => {
                    let claimed = self.editor.replace_opening(self.brick, from, to).await?;
                    self.view.wait_for_revision(claimed.revision).await?;
                    claimed.value
                }
                OpeningStep::Announce(claimed) => {
                    self.announce(&opening, claimed, position).await?;
                    true
                }
                OpeningStep::Force(history) => {
                    self.force(history, &counters).await?;
                    true
                }
                OpeningStep::Confirm { from, to } => {
                    self.editor.replace_opening(self.brick, Some(from), to).await?.value
                }
                OpeningStep::Serve { opening, history } => {
                    info!(brick = self.brick.0, opening = opening.number, position, "the brick is open");
                    return Ok(LocalOpening::new(self.brick, opening, history, self.store.clone()));
                }
            };
            if !opening.handle_done(is_replaced) {
                let what = format!("another process opens brick {} at the same time: stop one of them", self.brick);
                return Err(Error::new(ErrorKind::Denied, what).into());
            }
        }
    }

    /// Forces the history to the log, and the counters of the catalogue: a number that was given before the brick served is not
    /// given again, even if the catalogue is lost a moment later.
    async fn force(&self, history: OpeningHistory, kept: &Counters) -> Result<()> {
        let known = self.view.catalog().map(|catalog| catalog.counters().clone()).unwrap_or_default();
        let mut changes = RowChanges::new();
        kept_rows::put_history(&mut changes, &history);
        kept_rows::put_counters(&mut changes, kept_rows::merge_counters(&known, kept).as_ref().unwrap_or(&known))?;
        let store = self.store.clone();
        blocking::wait(move || store.commit_rows(changes).map(drop)).await
    }

    /// Compares the catalogue with what this brick saw of it before, and raises its counters to what the brick saw. Returns that.
    async fn check_catalogue(&self) -> Result<Counters> {
        self.view.witnesses().add_kept(self.store)?;
        for seen in self.view.witnesses().of(Subject::Catalogue) {
            check_own_position(self.editor, seen.forced, &format!("brick {} saw it", self.brick)).await?;
        }
        let store = self.store.clone();
        let kept = blocking::wait(move || kept_rows::counters(&store)).await?;
        let raised = self.editor.raise_counters(&kept).await?;
        if !raised.is_empty() {
            warn!(?raised, "counters of the catalogue were lower than this brick saw them, and are raised");
        }
        Ok(kept)
    }

    /// Asks all processes that live what they saw, before anything is changed.
    async fn ask_witnesses(&self, opening: &OpeningProcedure) -> Result<(), Problem> {
        let catalog = self.view.catalog().unwrap_or_default();
        let members = members(&catalog, self.brick);
        for (member, asked) in ask_all(members, self.credentials, Question::seen_of(self.brick)).await {
            match asked {
                Asked::Saw(seen) => self.check_all(opening, &member, &seen.seen)?,
                Asked::IsTheBrick => {
                    let what = format!(
                        "{} is served by another process: end that first, or start this one with its own directory",
                        member.name
                    );
                    return Err(Error::new(ErrorKind::Denied, what).into());
                }
                Asked::Ended | Asked::Silent => {}
            }
        }
        Ok(())
    }

    /// Tells all processes that live of the claimed opening, and compares what they saw meanwhile.
    ///
    /// A process that counts as alive and does not answer is waited for until its entry is gone, or as long as an entry without
    /// renewals lasts: by then it has the claim from the catalogue.
    async fn announce(&self, opening: &OpeningProcedure, claimed: Opening, position: u64) -> Result<(), Problem> {
        let Opening { number, nonce } = claimed;
        let claimed = Witnessed { brick: self.brick.0, number, nonce, position, at_us: 0 };
        let ttl = Duration::from_millis(self.editor.parameters().await?.session_ttl_ms);
        let until = Instant::now() + ttl;
        let mut left = members(&self.view.catalog().unwrap_or_default(), self.brick);
        loop {
            let mut silent = Vec::new();
            for (member, asked) in
                ask_all(left, self.credentials, Question { claimed: Some(claimed), ..Question::seen_of(self.brick) })
                    .await
            {
                match asked {
                    Asked::Saw(seen) => self.check_all(opening, &member, &seen.seen)?,
                    Asked::IsTheBrick | Asked::Ended => {}
                    Asked::Silent => silent.push(member),
                }
            }
            let living = members(&self.view.catalog().unwrap_or_default(), self.brick);
            silent.retain(|member| living.contains(member));
            if silent.is_empty() || Instant::now() >= until {
                silent.iter().for_each(|member| warn!(member = member.name, "it was not told that the brick opens"));
                return Ok(());
            }
            left = silent;
            time::sleep(RETRY_PAUSE).await;
        }
    }

    fn check_all(&self, opening: &OpeningProcedure, member: &Member, seen: &[Witnessed]) -> Result<(), Problem> {
        for seen in seen.iter().filter(|seen| seen.brick == self.brick.0) {
            let (_, seen) = witnessed_from_proto(seen)?;
            let at = model::Timestamp::from_micros(i64::try_from(seen.at_us).unwrap_or(i64::MAX));
            opening
                .handle_seen(seen.forced)
                .map_err(|refusal| Problem::Refused(refusal, format!("{} saw it at {at}", member.name)))?;
        }
        Ok(())
    }
}
