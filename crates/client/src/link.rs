//! A connection that is made again when it breaks.

use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, Result, SpaceId};
use wire::link::{Answer, Pending};
use wire::proto::request::Request;

use crate::{ConnectOptions, Url};

#[derive(Debug)]
pub(crate) struct Link {
    url: Url,
}

#[derive(Debug)]
pub(crate) struct Session {}

pub(crate) struct Answers {}

fn offline() -> Error {
    Error::new(ErrorKind::Unavailable, "this build of the client cannot connect")
}

impl Link {
    pub(crate) async fn connect(url: Url, _options: ConnectOptions) -> Result<Arc<Self>> {
        let _ = Self { url };
        Err(offline())
    }
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
    pub(crate) fn space(&self) -> SpaceId {
        SpaceId(1)
    }
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        Err(offline())
    }
    pub(crate) async fn read(&self, _request: Request) -> Result<Answer> {
        Err(offline())
    }
    pub(crate) async fn read_at(&self, _request: Request) -> Result<(Arc<Session>, Answer)> {
        Err(offline())
    }
    pub(crate) async fn once(&self, _request: Request, _raw: Vec<Bytes>) -> Result<Answer> {
        Err(offline())
    }
    pub(crate) async fn stream(&self, _request: Request) -> Result<Answers> {
        Err(offline())
    }
    pub(crate) fn close(&self) {}
}

impl Session {
    pub(crate) async fn call(&self, _request: Request, _raw: Vec<Bytes>) -> Result<Answer> {
        Err(offline())
    }
    pub(crate) async fn begin_call(&self, _request: Request, _raw: Vec<Bytes>) -> Result<Pending> {
        Err(offline())
    }
    pub(crate) fn tell(&self, _request: Request) {}
}

impl Answers {
    pub(crate) async fn next(&mut self) -> Result<Answer> {
        Err(offline())
    }
}
