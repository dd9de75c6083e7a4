//! Cuts through the bricks of a cluster (K1), and archives of their parts.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use protocol::cut::{CutCoordinator, CutFailure, CutNumber, CutOutcome, CutOutput, HoldReport, Run};
use protocol::lease::Ms;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use wire::link::Caller;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::AdminClient;
use super::link::OwnAnswers;
use crate::client_core::unexpected_answer_error;

/// How long a brick holds at most. Over a slow link the coordinator is that far away twice.
const HOLD: Duration = Duration::from_secs(2);
/// How long a cut may take. A disk that is slow delays the beginning of the hold. After so long no other one is tried.
const PATIENCE: Duration = Duration::from_secs(10);
/// Cuts that are tried at most, one after the other.
const TRIES: u32 = 8;
/// Why a cut fails whose moment lasts too long.
const AT_CUT_TOO_SLOW: &str = "the catalogue cannot be read while the bricks hold: the meta-server does not answer";
/// The pause before another try, in milliseconds: other cuts that begin at the same time need some. It is random, so that two that disturb each other
/// do not do so again.
const PAUSE_MS: std::ops::Range<u64> = 50..250;

/// The part of a cut that a brick has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPart {
    /// The number of the cut.
    pub number: u64,
    /// Whether the catalogue of the cluster is in the brick's store, and so in the part.
    pub has_catalogue: bool,
}

/// A brick that takes part in a cut.
pub(crate) trait CutBrick: Clone + Send + Sync + 'static {
    /// What messages call it.
    fn name(&self) -> String;

    /// Sends a request, once.
    fn ask(&self, request: Request) -> impl Future<Output = Result<Response>> + Send;
}

impl CutBrick for AdminClient {
    fn name(&self) -> String {
        match self.identity().brick {
            0 => self.link.url().to_string(),
            brick => format!("brick {brick}"),
        }
    }

    async fn ask(&self, request: Request) -> Result<Response> {
        let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", self.name())).with_source(error);
        Ok(self.link.once(request).await.map_err(named)?.response)
    }
}

/// What a brick answers.
enum Answer {
    Held(Run, CutPart),
    Refused { last: CutNumber, why: Error },
    Released(HoldReport),
    Lost(Error),
}

/// Takes the states of all bricks at one consistent moment, and what `at_cut` returns, which runs at that moment. The bricks make nothing
/// durable meanwhile, at most for two seconds.
///
/// A backup that follows the cluster gives a random number as `follower`, the same for all its cuts: from the first one on the bricks note what
/// changes, for [`AdminClient::read_changes`].
///
/// Returns the part of each brick, in the order of `bricks`. The brick keeps it for a minute: [`AdminClient::read_part`] reads it.
///
/// # Errors
/// Those of the bricks and of `at_cut`; [`ErrorKind::Unavailable`] if no cut counts after several attempts: a brick is restarted, or answers too
/// late.
pub async fn take_cut<T>(
    bricks: &[AdminClient],
    follower: Option<u64>,
    at_cut: impl AsyncFn(&[CutPart]) -> Result<T>,
) -> Result<(Vec<CutPart>, T)> {
    let at_cut = &at_cut;
    cut_bricks(bricks, follower, |parts| async move { at_cut(&parts).await }).await
}

/// [`take_cut`] through bricks that are reached in any way.
pub(crate) async fn cut_bricks<B: CutBrick, T, F: Future<Output = Result<T>>>(
    bricks: &[B],
    follower: Option<u64>,
    at_cut: impl Fn(Vec<CutPart>) -> F,
) -> Result<(Vec<CutPart>, T)> {
    let (began, mut tries) = (Instant::now(), 0);
    let mut number = CutNumber(micros_now());
    loop {
        let mut attempt = Attempt::new(bricks, follower, number);
        let error = match attempt.run(&at_cut).await {
            Ok(cut) => return Ok(cut),
            Err(error) => error,
        };
        tries += 1;
        let is_passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
        if !is_passing || tries == TRIES || began.elapsed() >= PATIENCE {
            return Err(error);
        }
        let taken = attempt.largest.max(number);
        time::sleep(Duration::from_millis(rand::random_range(PAUSE_MS))).await;
        // The clock has gone on, and so has the number of a cut that another one began meanwhile.
        number = CutNumber(micros_now().max(taken.0.saturating_add(1)));
    }
}

fn micros_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// One cut.
struct Attempt<'a, B> {
    bricks: &'a [B],
    follower: Option<u64>,
    began: Instant,
    cut: CutCoordinator<usize>,
    answers: JoinSet<(usize, Answer)>,
    parts: BTreeMap<usize, CutPart>,
    /// The largest number that a brick has taken.
    largest: CutNumber,
    /// Why a brick refused, or was lost.
    error: Option<Error>,
}

impl<'a, B: CutBrick> Attempt<'a, B> {
    fn new(bricks: &'a [B], follower: Option<u64>, number: CutNumber) -> Self {
        let cut = CutCoordinator::begin(number, 0..bricks.len(), PATIENCE.as_millis() as Ms, 0);
        Self {
            bricks,
            follower,
            began: Instant::now(),
            cut,
            answers: JoinSet::new(),
            parts: BTreeMap::new(),
            largest: CutNumber::default(),
            error: None,
        }
    }

    fn now(&self) -> Ms {
        self.began.elapsed().as_millis() as Ms
    }

    async fn run<T, F: Future<Output = Result<T>>>(
        &mut self,
        at_cut: impl Fn(Vec<CutPart>) -> F,
    ) -> Result<(Vec<CutPart>, T)> {
        let mut at_moment = None;
        loop {
            while let Some(output) = self.cut.next_output() {
                match output {
                    CutOutput::Hold(brick) => self.hold(brick),
                    CutOutput::Release(brick) => self.release(brick),
                    CutOutput::AllHold => {
                        let parts: Vec<CutPart> = self.parts.values().copied().collect();
                        let done = time::timeout(HOLD, at_cut(parts)).await;
                        match done.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, AT_CUT_TOO_SLOW))) {
                            Ok(done) => at_moment = Some(done),
                            Err(error) => {
                                self.error = Some(error);
                                self.cut.abandon();
                                continue;
                            }
                        }
                        self.cut.release();
                    }
                }
            }
            match self.cut.outcome().cloned() {
                Some(CutOutcome::Counts) => {
                    let done = at_moment.ok_or_else(|| Error::new(ErrorKind::Internal, "a cut without its moment"))?;
                    return Ok((self.parts.values().copied().collect(), done));
                }
                Some(CutOutcome::Failed(why)) => {
                    let why = self.explain(&why);
                    // Bricks that hold are told to go on, and what they answer does not matter.
                    self.answers.detach_all();
                    return Err(why);
                }
                None => {}
            }
            let left = Duration::from_millis(self.cut.deadline().saturating_sub(self.now()));
            match time::timeout(left, self.answers.join_next()).await {
                Ok(Some(Ok((brick, answer)))) => self.handle(brick, answer),
                Ok(Some(Err(_)) | None) => {
                    self.error =
                        Some(Error::new(ErrorKind::Internal, "a request of the cut has ended without an answer"));
                    self.cut.abandon();
                }
                // The cut fails below.
                Err(_) => {}
            }
            self.cut.poll(self.now());
        }
    }

    fn hold(&mut self, brick: usize) {
        let (client, number, follower) = (self.bricks[brick].clone(), self.cut.number(), self.follower);
        tasks::spawn_in(&mut self.answers, async move { (brick, hold(&client, number, follower).await) });
    }

    fn release(&mut self, brick: usize) {
        let (client, number) = (self.bricks[brick].clone(), self.cut.number());
        tasks::spawn_in(&mut self.answers, async move { (brick, release(&client, number).await) });
    }

    fn handle(&mut self, brick: usize, answer: Answer) {
        match answer {
            Answer::Held(run, part) => {
                self.parts.insert(brick, part);
                self.cut.handle_held(brick, run);
            }
            Answer::Released(ended) => self.cut.handle_released(brick, ended),
            Answer::Refused { last, why } => {
                self.largest = self.largest.max(last);
                self.error.get_or_insert(why);
                self.cut.handle_refused(brick);
            }
            Answer::Lost(error) => {
                self.error.get_or_insert(error);
                self.cut.handle_refused(brick);
            }
        }
    }

    fn explain(&mut self, why: &CutFailure<usize>) -> Error {
        if let Some(error) = self.error.take() {
            return error;
        }
        let of = |brick: &usize| self.bricks.get(*brick).map_or_else(String::new, CutBrick::name);
        let what = match why {
            CutFailure::Refused(brick) => format!("{} takes no part in a cut", of(brick)),
            CutFailure::ReleasedItself(brick) => {
                format!("{} held its log for {HOLD:?} and then went on: the connection to it is slow", of(brick))
            }
            CutFailure::Restarted(brick) => format!("{} was restarted during the cut", of(brick)),
            CutFailure::Abandoned => "the catalogue cannot be read".to_owned(),
            CutFailure::TimedOut(bricks) => {
                let names: Vec<String> = bricks.iter().map(of).collect();
                format!("{} did not answer within {PATIENCE:?}", names.join(", "))
            }
        };
        Error::new(ErrorKind::Unavailable, what)
    }
}

async fn hold(brick: &impl CutBrick, number: CutNumber, follower: Option<u64>) -> Answer {
    let cut = proto::Cut { number: number.0, hold_ms: HOLD.as_millis() as u32, follower };
    match brick.ask(Request::Cut(cut)).await {
        Ok(Response::CutHeld(proto::CutHeld { run, has_catalogue })) => {
            Answer::Held(Run(run), CutPart { number: number.0, has_catalogue })
        }
        Ok(Response::CutRefused(proto::CutRefused { last, why })) => {
            let why = Error::new(ErrorKind::Unavailable, format!("{}: {why}", brick.name()));
            Answer::Refused { last: CutNumber(last), why }
        }
        Ok(_) => Answer::Lost(unexpected_answer_error()),
        Err(error) => Answer::Lost(error),
    }
}

async fn release(brick: &impl CutBrick, number: CutNumber) -> Answer {
    let release = proto::ReleaseCut { number: number.0 };
    match brick.ask(Request::ReleaseCut(release)).await {
        Ok(Response::CutReleased(proto::CutReleased { run, lasted })) => {
            Answer::Released(HoldReport { run: Run(run), lasted })
        }
        Ok(_) => Answer::Lost(unexpected_answer_error()),
        Err(error) => Answer::Lost(error),
    }
}

impl AdminClient {
    /// The archive of the part of a cut that this brick has; without one, that of its newest state.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the brick does not keep the part any more; those of the brick.
    pub async fn read_part(&self, part: Option<CutPart>) -> Result<ArchiveStream> {
        self.read_archive(proto::Backup { cut: part.map(|part| part.number), ..Default::default() }).await
    }

    /// As [`AdminClient::read_part`], but only what has changed since another archive, whose index the second result sends.
    ///
    /// # Errors
    /// As [`AdminClient::read_part`].
    pub async fn read_increment(&self, part: Option<CutPart>) -> Result<(ArchiveStream, BaseUpload)> {
        let backup = proto::Backup { cut: part.map(|part| part.number), increment: true, ..Default::default() };
        let stream = self.read_archive(backup).await?;
        let upload = BaseUpload(stream.answers.caller());
        Ok((stream, upload))
    }

    /// As [`AdminClient::read_part`], but only what has changed since the cut number `since` of the same follower. The follower has read everything up
    /// to that: the brick forgets earlier cuts.
    ///
    /// # Errors
    /// As [`AdminClient::read_part`]; [`ErrorKind::NotFound`] also if the brick does not know all changes, because it was restarted, too much has changed,
    /// or the follower was not heard of for ten minutes.
    pub async fn read_changes(&self, part: CutPart, since: u64) -> Result<ArchiveStream> {
        let (cut, changes_since) = (Some(part.number), Some(since));
        self.read_archive(proto::Backup { cut, changes_since, ..Default::default() }).await
    }

    /// The catalogue of the cluster of this brick, as an archive.
    ///
    /// # Errors
    /// Those of the brick and the meta-server.
    pub async fn read_catalogue(&self) -> Result<Vec<u8>> {
        let mut stream = self.read_archive(proto::Backup { catalogue: true, ..Default::default() }).await?;
        let mut archive = Vec::new();
        while let Some(piece) = stream.next().await? {
            archive.extend_from_slice(&piece.bytes);
        }
        Ok(archive)
    }

    pub(super) async fn read_archive(&self, backup: proto::Backup) -> Result<ArchiveStream> {
        Ok(ArchiveStream { answers: self.link.stream(Request::Backup(backup)).await?, total: 0 })
    }
}

/// A piece of an archive. It was compared with its checksum when it came.
#[derive(Clone, Debug)]
pub struct ArchivePiece {
    /// The bytes.
    pub bytes: Bytes,
    /// Their CRC-32C.
    pub checksum: u32,
}

/// An archive as it comes, on a connection of its own, so that a slow reader delays no other call. Dropping it ends it.
pub struct ArchiveStream {
    answers: OwnAnswers,
    total: u64,
}

impl ArchiveStream {
    /// About the bytes of the archive, from its first bytes on; 0 if that is not known.
    pub fn estimated_bytes(&self) -> u64 {
        self.total
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Those of the server; the archive is not complete then.
    pub async fn next(&mut self) -> Result<Option<ArchivePiece>> {
        let answer = self.answers.next().await?;
        match answer.response {
            Response::BackupPiece(piece) => {
                self.total = self.total.max(piece.total);
                Ok(Some(ArchivePiece { checksum: answer.checksum(), bytes: answer.raw }))
            }
            Response::BackupDone(_) => Ok(None),
            _ => Err(unexpected_answer_error()),
        }
    }
}

/// Sends the index of the base of an increment, while its [`ArchiveStream`] is read.
pub struct BaseUpload(Caller);

impl BaseUpload {
    /// Sends the next piece, of at most 1 MiB. Returns when the brick has taken it.
    ///
    /// # Errors
    /// Those of the brick; [`ErrorKind::Unavailable`] if the backup has ended.
    pub async fn send(&self, piece: Bytes, is_last: bool) -> Result<()> {
        let request = Request::BackupBase(proto::BackupBase { is_last });
        match self.0.call(request, vec![piece]).await?.response {
            Response::Done(_) => Ok(()),
            _ => Err(unexpected_answer_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    /// A brick through which another client cuts all the time: it takes a cut whose number is as high as the clock was a little before each
    /// request. It is busy with one of these when it is asked for the first time.
    #[derive(Clone, Default)]
    struct SharedBrick(Arc<Mutex<Option<u64>>>);

    impl CutBrick for SharedBrick {
        fn name(&self) -> String {
            "shared".to_owned()
        }

        async fn ask(&self, request: Request) -> Result<Response> {
            let mut begun = self.0.lock().unwrap();
            match request {
                Request::Cut(cut) => {
                    let last = micros_now() - 10_000;
                    let is_refused = begun.is_none() || cut.number <= last;
                    *begun = Some(cut.number);
                    Ok(if is_refused {
                        Response::CutRefused(proto::CutRefused { last, why: "a later one".to_owned() })
                    } else {
                        Response::CutHeld(proto::CutHeld { run: 1, has_catalogue: false })
                    })
                }
                _ => Ok(Response::CutReleased(proto::CutReleased { run: 1, lasted: true })),
            }
        }
    }

    /// A brick that has ended: the client tries to reach it for a while.
    #[derive(Clone)]
    struct EndedBrick(Duration);

    impl CutBrick for EndedBrick {
        fn name(&self) -> String {
            "ended".to_owned()
        }

        async fn ask(&self, _: Request) -> Result<Response> {
            time::sleep(self.0).await;
            Err(Error::new(ErrorKind::Unavailable, "no server listens"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn brick_that_cannot_be_reached_ends_a_cut_when_its_time_is_over() {
        for (reached_for, most) in [(PATIENCE / 4, PATIENCE * 2), (PATIENCE * 10, PATIENCE + HOLD)] {
            let began = Instant::now();
            let failed = cut_bricks(&[EndedBrick(reached_for)], None, |_| async { Ok(()) }).await.unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
            assert!(began.elapsed() <= most, "{:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn another_try_has_a_number_that_is_larger_than_those_of_cuts_that_others_made_meanwhile() {
        let bricks = [SharedBrick::default()];
        let (parts, ()) = cut_bricks(&bricks, None, |_| async { Ok(()) }).await.unwrap();
        assert_eq!(Some(parts[0].number), *bricks[0].0.lock().unwrap());
    }

    #[tokio::test]
    async fn no_other_cut_is_made_after_an_error_that_another_try_cannot_change() {
        let tries = AtomicU32::new(0);
        let bricks = [SharedBrick::default()];
        let failed = cut_bricks(&bricks, None, |_| async {
            tries.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::new(ErrorKind::Denied, "not allowed"))
        });
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(tries.load(Ordering::Relaxed), 1);
    }
}
