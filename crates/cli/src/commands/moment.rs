//! `--moment`: a command that reads a whole space as it is at one moment, from a clone that is removed afterwards.

use meta::catalog::JobRequest;

use super::job;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::serving::Signals;

/// Runs a command on a clone of the space, which is removed when it has ended or is stopped. `when_stopped` is the message of the failure
/// for a command that was stopped.
pub(crate) async fn run_at_one_moment(
    session: &mut CommandContext,
    when_stopped: &str,
    run: impl AsyncFnOnce(&mut CommandContext) -> Result,
) -> Result {
    let (client, space) = (session.connect_to_cluster().await?, session.connect().await?.url().space.clone());
    // From here on a signal does not end the process before the clone is removed.
    let mut signals = Signals::listen()?;
    let name = format!("moment-{:08x}", rand::random::<u32>());
    let wanted = JobRequest::Clone { space, name: name.clone(), rate: None };
    let begun = job::ask_one(&client, &wanted).await.map_err(|failure| match failure.exit() {
        // It may have begun.
        Exit::Unknown => failure.hint(clone_hint(&name)),
        _ => failure,
    });
    let job = begun?.job;
    let cloned = tokio::select! {
        ended = job::wait_while_it_proceeds(&client, session, job, "cloning") => ended.and_then(|ended| job::check_end(&ended)),
        () = signals.next() => Err(Failure::interrupted(when_stopped)),
    };
    if let Err(failure) = cloned {
        // What was stopped is given up, and a clone that has become complete meanwhile is removed.
        let is_cancelled = job::ask_one(&client, &JobRequest::Cancel { job }).await.is_ok();
        let is_gone = is_cancelled || client.remove_space(&name).await.is_ok();
        return Err(if is_gone { failure } else { failure.hint(clone_hint(&name)) });
    }
    let before = session.set_space(Some(name.clone()));
    let done = tokio::select! {
        done = run(session) => done,
        () = signals.next() => Err(Failure::interrupted(when_stopped)),
    };
    session.set_space(before);
    let removed = client.remove_space(&name).await.map_err(|error| Failure::from(error).hint(clone_hint(&name)));
    match (done, removed) {
        (Err(failure), Err(_)) => Err(failure.hint(clone_hint(&name))),
        (done, removed) => done.and(removed),
    }
}

fn clone_hint(name: &str) -> String {
    format!(
        "`mortar space rm {name} --yes` removes the clone, if it is still there; `mortar job ls` shows whether it is still made."
    )
}
