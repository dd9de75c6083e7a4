//! Conversions between the catalogue's requests about jobs, members, moves, classes and indexes and the messages of
//! `proto/jobs.proto`, `proto/members.proto`, `proto/moves.proto` and `proto/schema.proto`.
//!
//! Servers read requests and write answers; the command line does the reverse. Messages come from outside: what a field can
//! hold beyond what the catalogue knows is refused as [`ErrorKind::Invalid`].

mod jobs;
mod members;
mod moves;
mod schema;

use model::{Error, ErrorKind};

pub use jobs::{job_answer_from_proto, job_answer_to_proto, job_request_from_proto, job_request_to_proto};
pub use members::{
    member_answer_from_proto, member_answer_to_proto, member_request_from_proto, member_request_to_proto,
};
pub(crate) use moves::move_in_from_proto;
pub use moves::{move_answer_from_proto, move_answer_to_proto, move_request_from_proto, move_request_to_proto};
pub use schema::{
    schema_answer_from_proto, schema_answer_to_proto, schema_request_from_proto, schema_request_to_proto,
};

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what.to_owned())
}
