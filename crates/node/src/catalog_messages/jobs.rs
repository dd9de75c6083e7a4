//! Requests about jobs.

use meta::catalog::{BrickId, JobAnswer, JobId, JobPartView, JobRate, JobRequest, JobState, JobView};
use model::Result;
use wire::proto::jobs as proto;
use wire::proto::jobs::job_request::Request;
use wire::proto::jobs::rate::Count;

use super::invalid;

fn rate_to_proto(rate: JobRate) -> proto::Rate {
    let count = match rate {
        JobRate::Objects(count) => Count::Objects(count),
        JobRate::Bytes(count) => Count::Bytes(count),
    };
    proto::Rate { count: Some(count) }
}

fn rate_from_proto(rate: &proto::Rate) -> Result<JobRate> {
    match rate.count {
        Some(Count::Objects(count)) => Ok(JobRate::Objects(count)),
        Some(Count::Bytes(count)) => Ok(JobRate::Bytes(count)),
        None => Err(invalid("the rate of a job does not say how much")),
    }
}

/// The message of a request.
#[must_use]
pub fn job_request_to_proto(request: &JobRequest) -> proto::JobRequest {
    let request = match request.clone() {
        JobRequest::List => Request::List(proto::List {}),
        JobRequest::Show { job } => Request::Show(job.0),
        JobRequest::Evolve { space, classes, rate } => {
            Request::Evolve(proto::Evolve { space, classes, rate: rate.map(rate_to_proto) })
        }
        JobRequest::Scrub { bricks, rate } => {
            let bricks = bricks.into_iter().map(|brick| brick.0).collect();
            Request::Scrub(proto::Scrub { bricks, rate: rate.map(rate_to_proto) })
        }
        JobRequest::Clone { space, name, rate } => {
            Request::Clone(proto::Clone { space, name, rate: rate.map(rate_to_proto) })
        }
        JobRequest::Pause { job } => Request::Pause(job.0),
        JobRequest::Resume { job } => Request::Resume(job.0),
        JobRequest::Cancel { job } => Request::Cancel(job.0),
        JobRequest::SetRate { job, rate } => {
            Request::SetRate(proto::SetRate { job: job.0, rate: rate.map(rate_to_proto) })
        }
    };
    proto::JobRequest { request: Some(request) }
}

/// The request of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it names no request.
pub fn job_request_from_proto(message: &proto::JobRequest) -> Result<JobRequest> {
    let rate = |rate: &Option<proto::Rate>| rate.as_ref().map(rate_from_proto).transpose();
    let missing = || invalid("a request about jobs does not say what is wanted");
    Ok(match message.request.clone().ok_or_else(missing)? {
        Request::List(proto::List {}) => JobRequest::List,
        Request::Show(job) => JobRequest::Show { job: JobId(job) },
        Request::Evolve(evolve) => {
            let rate = rate(&evolve.rate)?;
            JobRequest::Evolve { space: evolve.space, classes: evolve.classes, rate }
        }
        Request::Scrub(scrub) => {
            let rate = rate(&scrub.rate)?;
            JobRequest::Scrub { bricks: scrub.bricks.into_iter().map(BrickId).collect(), rate }
        }
        Request::Clone(clone) => {
            let rate = rate(&clone.rate)?;
            JobRequest::Clone { space: clone.space, name: clone.name, rate }
        }
        Request::Pause(job) => JobRequest::Pause { job: JobId(job) },
        Request::Resume(job) => JobRequest::Resume { job: JobId(job) },
        Request::Cancel(job) => JobRequest::Cancel { job: JobId(job) },
        Request::SetRate(set) => JobRequest::SetRate { job: JobId(set.job), rate: rate(&set.rate)? },
    })
}

/// The message of an answer.
#[must_use]
pub fn job_answer_to_proto(answer: JobAnswer) -> proto::JobAnswer {
    proto::JobAnswer { jobs: answer.jobs.into_iter().map(job_to_proto).collect() }
}

fn job_to_proto(view: JobView) -> proto::Job {
    let state = match view.state {
        JobState::Running => proto::State::Running,
        JobState::Paused => proto::State::Paused,
        JobState::Done => proto::State::Done,
        JobState::Failed => proto::State::Failed,
        JobState::Cancelled => proto::State::Cancelled,
    };
    let part = |part: JobPartView| {
        let JobPartView { part, worker, done, total, changed, ended } = part;
        proto::Part { part, worker, done, total, changed, ended }
    };
    proto::Job {
        job: view.job.0,
        kind: view.kind,
        space: view.space,
        subjects: view.subjects,
        state: state.into(),
        begun_by: view.begun_by,
        begun_ms: view.begun_ms,
        ended_ms: view.ended_ms,
        rate: view.rate,
        unit: view.unit,
        done: view.done,
        total: view.total,
        worked_ms: view.worked_ms,
        objects: view.objects,
        changed: view.changed,
        found: view.found,
        error: view.error,
        damaged: view.damaged,
        problems: view.problems,
        parts: view.parts.into_iter().map(part).collect(),
        findings: view.findings,
        corrected: view.corrected,
    }
}

/// The answer of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if a job is in a state that this version does not know.
pub fn job_answer_from_proto(message: proto::JobAnswer) -> Result<JobAnswer> {
    Ok(JobAnswer { jobs: message.jobs.into_iter().map(job_from_proto).collect::<Result<_>>()? })
}

fn job_from_proto(job: proto::Job) -> Result<JobView> {
    let state = match proto::State::try_from(job.state) {
        Ok(proto::State::Running) => JobState::Running,
        Ok(proto::State::Paused) => JobState::Paused,
        Ok(proto::State::Done) => JobState::Done,
        Ok(proto::State::Failed) => JobState::Failed,
        Ok(proto::State::Cancelled) => JobState::Cancelled,
        Ok(proto::State::None) | Err(_) => return Err(invalid("a job is in a state that this version does not know")),
    };
    let part = |part: proto::Part| {
        let proto::Part { part, worker, done, total, changed, ended } = part;
        JobPartView { part, worker, done, total, changed, ended }
    };
    Ok(JobView {
        job: JobId(job.job),
        kind: job.kind,
        space: job.space,
        subjects: job.subjects,
        state,
        begun_by: job.begun_by,
        begun_ms: job.begun_ms,
        ended_ms: job.ended_ms,
        rate: job.rate,
        unit: job.unit,
        done: job.done,
        total: job.total,
        worked_ms: job.worked_ms,
        objects: job.objects,
        changed: job.changed,
        found: job.found,
        error: job.error,
        damaged: job.damaged,
        problems: job.problems,
        parts: job.parts.into_iter().map(part).collect(),
        findings: job.findings,
        corrected: job.corrected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_after_the_wire() {
        let job = JobId(7);
        for request in [
            JobRequest::List,
            JobRequest::Show { job },
            JobRequest::Evolve { space: "main".to_owned(), classes: vec!["P".to_owned()], rate: None },
            JobRequest::Evolve { space: String::new(), classes: vec![], rate: Some(JobRate::Objects(5)) },
            JobRequest::Scrub { bricks: vec![BrickId(1)], rate: Some(JobRate::Bytes(1 << 40)) },
            JobRequest::Clone { space: "main".to_owned(), name: "copy".to_owned(), rate: Some(JobRate::Objects(7)) },
            JobRequest::Pause { job },
            JobRequest::Resume { job },
            JobRequest::Cancel { job },
            JobRequest::SetRate { job, rate: None },
            JobRequest::SetRate { job, rate: Some(JobRate::Objects(1)) },
        ] {
            assert_eq!(job_request_from_proto(&job_request_to_proto(&request)).unwrap(), request);
        }
    }

    #[test]
    fn answers_are_the_same_after_the_wire() {
        let worker = Some("brick 2".to_owned());
        let part = JobPartView { part: "brick 2".to_owned(), worker, done: 1, total: 2, changed: 3, ended: true };
        let view = |state, space: Option<&str>| JobView {
            job: JobId(3),
            kind: "scrub".to_owned(),
            space: space.map(str::to_owned),
            subjects: vec!["A".to_owned()],
            state,
            begun_by: "ann".to_owned(),
            begun_ms: 4,
            ended_ms: space.map(|_| 5),
            rate: space.map(|_| 6),
            unit: "bytes".to_owned(),
            done: 7,
            total: 8,
            worked_ms: 9,
            objects: 10,
            changed: 11,
            found: 12,
            error: space.map(str::to_owned),
            damaged: state == JobState::Failed,
            problems: vec!["away".to_owned()],
            parts: vec![part.clone()],
            findings: vec!["damaged".to_owned()],
            corrected: vec!["a count".to_owned()],
        };
        let states = [JobState::Running, JobState::Paused, JobState::Done, JobState::Failed, JobState::Cancelled];
        let jobs = states.into_iter().flat_map(|state| [view(state, None), view(state, Some("main"))]).collect();
        let answer = JobAnswer { jobs };
        assert_eq!(job_answer_from_proto(job_answer_to_proto(answer.clone())).unwrap(), answer);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(job_request_from_proto(&proto::JobRequest::default()).is_err());
        let set = proto::SetRate { job: 1, rate: Some(proto::Rate { count: None }) };
        assert!(job_request_from_proto(&proto::JobRequest { request: Some(Request::SetRate(set)) }).is_err());
        let jobs = vec![proto::Job::default()];
        assert!(job_answer_from_proto(proto::JobAnswer { jobs }).is_err());
    }
}
