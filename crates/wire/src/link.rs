//! A connection at work.

use bytes::Bytes;
use model::{Error, ErrorKind, Result};

use crate::proto::response::Response;

/// An answer and the bytes that came with it.
#[derive(Debug)]
pub struct Answer {
    /// The message.
    pub response: Response,
    /// The raw part.
    pub raw: Bytes,
}

/// A call that was sent.
#[derive(Debug)]
pub struct Pending {}

impl Pending {
    /// Waits for the answer.
    pub async fn answer(&mut self) -> Result<Answer> {
        Err(Error::new(ErrorKind::Unavailable, "this build cannot connect"))
    }
}
