//! `/metrics` in Prometheus' text format and `/health`, by HTTP/1.1.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time;
use tracing::{debug, warn};
use wire::tasks;

use super::{ServerRole, Shared, metric};

/// Connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may last. A client that polls connects again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves HTTP connections until the task is aborted.
pub(crate) async fn serve<R: ServerRole>(listener: TcpListener, server: Arc<Shared<R>>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = server.clone();
                tasks::spawn(async move {
                    serve_connection(stream, server).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "a connection for HTTP cannot be accepted");
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection<R: ServerRole>(stream: TcpStream, server: Arc<Shared<R>>) {
    let service = service_fn(move |request| {
        let response = answer(&server, &request);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = time::timeout(CONNECTION_TIMEOUT, connection).await {
        debug!(%error, "a connection for HTTP broke");
    }
}

fn answer<R: ServerRole>(server: &Shared<R>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let mut response = text(StatusCode::OK, metric::prometheus(server));
            let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, format);
            response
        }
        "/health" => match server.role.health_problem() {
            Some(health_problem) => text(StatusCode::SERVICE_UNAVAILABLE, health_problem + "\n"),
            None => text(StatusCode::OK, "ok\n".to_owned()),
        },
        _ => text(StatusCode::NOT_FOUND, "there are /metrics and /health\n".to_owned()),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
