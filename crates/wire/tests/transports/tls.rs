//! Invalid certificates, sides without TLS, and files that change.

use std::fs;
use std::path::Path;

use model::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::handshake;
use wire::transport::tls::{Client, ClientFiles, Identity, Server, ServerFiles};
use wire::transport::{Address, Listener, Stream};

use super::certificates::{Age, Authority, client, server};
use super::{Door, local, meet, run};

fn with_dir<F: Future<Output = ()>>(test: impl FnOnce(tempfile::TempDir) -> F) {
    run(test(tempfile::tempdir().unwrap()));
}

/// The errors of client and server when the handshake fails.
async fn trouble(server_files: ServerFiles, client_files: ClientFiles) -> (Error, Error) {
    let (server, client) = (server(server_files), client(client_files));
    let (near, far) = meet(&local(true), Some(&server), Some(&client)).await;
    // A server checks a client's certificate after the client has finished its side of the handshake.
    let near = match near {
        Ok(mut stream) => handshake::dial(&mut stream, "main", "test").await.map(drop),
        Err(error) => Err(error),
    };
    (near.unwrap_err(), far.map(drop).unwrap_err())
}

#[test]
fn expired_certificate_is_refused_and_named_by_both_sides() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let (near, far) = trouble(authority.server(Age::Expired), authority.client(None)).await;
        assert_eq!(near.kind(), ErrorKind::Denied);
        assert!(near.message().ends_with("has expired: renew it"), "{near}");
        assert_eq!(far.kind(), ErrorKind::Denied);
        assert!(far.message().contains("this server's certificate and reports that it has expired"), "{far}");
    });
}

#[test]
fn certificate_of_the_future_is_refused() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let (near, _) = trouble(authority.server(Age::NotYet), authority.client(None)).await;
        assert!(near.message().ends_with("is not valid yet: check the clocks"), "{near}");
    });
}

#[test]
fn certificate_for_another_name_is_refused_unless_that_is_expected() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let identity = authority.issue("server", "server", &["brick.example"], Age::Valid);
        let files = ServerFiles { identity, clients: None };
        let (near, _) = trouble(files.clone(), authority.client(None)).await;
        assert_eq!(near.kind(), ErrorKind::Denied);
        assert!(near.message().contains("is for brick.example: connect by one of these names"), "{near}");
        let expecting = client(ClientFiles { name: Some("brick.example".to_owned()), ..authority.client(None) });
        let (near, far) = meet(&local(true), Some(&server(files)), Some(&expecting)).await;
        assert!(near.is_ok() && far.is_ok());
    });
}

#[test]
fn certificate_of_an_unknown_authority_is_refused_and_named_by_both_sides() {
    with_dir(async |dir| {
        let (authority, other) = (Authority::new(dir.path(), "authority"), Authority::new(dir.path(), "other"));
        let (near, far) = trouble(authority.server(Age::Valid), other.client(None)).await;
        assert_eq!(near.kind(), ErrorKind::Denied);
        assert!(near.message().contains("comes from an authority that is not trusted"), "{near}");
        assert!(far.message().contains("does not know its authority"), "{far}");
    });
}

#[test]
fn client_without_a_required_certificate_is_refused() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let (near, far) = trouble(authority.server_for(&authority, true), authority.client(None)).await;
        assert_eq!((near.kind(), far.kind()), (ErrorKind::Denied, ErrorKind::Denied));
        assert!(near.message().contains("requires a client certificate"), "{near}");
        assert!(far.message().contains("the client has no certificate"), "{far}");
    });
}

#[test]
fn client_of_an_unknown_authority_is_refused_even_where_none_is_required() {
    with_dir(async |dir| {
        let (authority, other) = (Authority::new(dir.path(), "authority"), Authority::new(dir.path(), "other"));
        let stranger = other.issue("client", "mallory", &[], Age::Valid);
        let (near, far) = trouble(authority.server_for(&authority, false), authority.client(Some(stranger))).await;
        assert_eq!((near.kind(), far.kind()), (ErrorKind::Denied, ErrorKind::Denied));
        assert!(near.message().contains("received this client's certificate"), "{near}");
        assert!(far.message().contains("the client's certificate comes from an authority"), "{far}");
    });
}

#[test]
fn client_with_an_expired_certificate_is_refused() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let old = authority.issue("client", "alice", &[], Age::Expired);
        let (near, far) = trouble(authority.server_for(&authority, true), authority.client(Some(old))).await;
        assert!(near.message().contains("reports that it has expired"), "{near}");
        assert!(far.message().contains("the client's certificate has expired"), "{far}");
    });
}

#[test]
fn client_without_tls_is_refused_by_a_tls_port_with_a_hint() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let listener = Listener::bind(&local(true), Some(&server(authority.server(Age::Valid)))).await.unwrap();
        let Address::Tls(host) = listener.address().unwrap() else { panic!("it speaks TLS") };
        let accepting = async { listener.accept().await.unwrap().0.into_stream().await.map(drop) };
        let dialling = async {
            let mut stream = Stream::connect(&Address::Tcp(host.clone())).await.unwrap();
            handshake::dial(&mut stream, "main", "test").await
        };
        let (near, far) = tokio::join!(dialling, accepting);
        let (near, far) = (near.unwrap_err(), far.unwrap_err());
        assert_eq!((near.kind(), far.kind()), (ErrorKind::Unsupported, ErrorKind::Unsupported));
        assert!(near.message().contains("connect to it as mortars://"), "{near}");
        assert!(far.message().contains("a client without TLS"), "{far}");
    });
}

#[test]
fn browser_without_tls_at_a_tls_port_shows_the_reason() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let listener = Listener::bind(&local(true), Some(&server(authority.server(Age::Valid)))).await.unwrap();
        let Address::Tls(host) = listener.address().unwrap() else { panic!("it speaks TLS") };
        let accepting = async { listener.accept().await.unwrap().0.into_stream().await.map(drop) };
        let browsing = async {
            let mut stream = Stream::connect(&Address::Tcp(host.clone())).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await.unwrap();
            reply
        };
        let (reply, far) = tokio::join!(browsing, accepting);
        assert!(reply.starts_with("HTTP/1.1 400") && reply.contains("mortars://"), "{reply}");
        assert_eq!(far.unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn tls_client_is_refused_by_a_port_without_tls_with_a_hint() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let listener = Listener::bind(&local(false), None).await.unwrap();
        let Address::Tcp(host) = listener.address().unwrap() else { panic!("it does not speak TLS") };
        let accepting = async {
            let mut stream = listener.accept().await.unwrap().0.into_stream().await.unwrap();
            handshake::accept(&mut stream, &mut Door::default(), "test").await
        };
        let (address, client) = (Address::Tls(host), client(authority.client(None)));
        let (near, far) = tokio::join!(Stream::dial(&address, Some(&client)), accepting);
        let (near, far) = (near.unwrap_err(), far.unwrap_err());
        assert_eq!((near.kind(), far.kind()), (ErrorKind::Unsupported, ErrorKind::Unsupported));
        assert!(near.message().contains("does not speak TLS: connect to it as mortar://"), "{near}");
        assert!(far.message().contains("a client that speaks TLS"), "{far}");
    });
}

#[test]
fn port_without_a_server_is_unavailable() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let listener = Listener::bind(&local(false), None).await.unwrap();
        let Address::Tcp(host) = listener.address().unwrap() else { panic!("it does not speak TLS") };
        drop(listener);
        let client = client(authority.client(None));
        for address in [Address::Tls(host.clone()), Address::Tcp(host)] {
            let error = Stream::dial(&address, Some(&client)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().starts_with("no server listens at"), "{error}");
        }
    });
}

#[test]
fn missing_tls_configuration_is_named() {
    run(async {
        let address = Address::Tls("localhost:1".to_owned());
        assert_eq!(Stream::dial(&address, None).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(Listener::bind(&address, None).await.unwrap_err().to_string().contains("certificate"));
    });
}

#[test]
fn connection_that_dies_during_the_negotiation_is_unavailable() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let listener = Listener::bind(&local(true), Some(&server(authority.server(Age::Valid)))).await.unwrap();
        let Address::Tls(host) = listener.address().unwrap() else { panic!("it speaks TLS") };
        for sent in [&b""[..], b"\x16", b"\x16\x03\x01\x02"] {
            let mut stream = Stream::connect(&Address::Tcp(host.clone())).await.unwrap();
            stream.write_all(sent).await.unwrap();
            drop(stream);
            let error = listener.accept().await.unwrap().0.into_stream().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{sent:?}: {error}");
        }
    });
}

/// The common name of the certificate that the server uses now.
async fn server_name(listener: &Listener, client: &Client) -> Result<String> {
    let address = listener.address().unwrap();
    let accepting = async { listener.accept().await.unwrap().0.into_stream().await };
    let (near, _far) = tokio::join!(Stream::dial(&address, Some(client)), accepting);
    Ok(near?.peer().subject.unwrap().name)
}

#[test]
fn replaced_certificates_are_used_for_new_connections() {
    with_dir(async |dir| {
        let authority = Authority::new(dir.path(), "authority");
        let (server, client) = (server(authority.server(Age::Valid)), client(authority.client(None)));
        let listener = Listener::bind(&local(true), Some(&server)).await.unwrap();
        assert!(server_name(&listener, &client).await.unwrap().contains("CN=server"));
        authority.issue("server", "renewed", &["127.0.0.1"], Age::Valid);
        assert!(server_name(&listener, &client).await.unwrap().contains("CN=renewed"));
        // Between the two renames the files do not match.
        let next = authority.issue("next", "next", &["127.0.0.1"], Age::Valid);
        let place = |from: &Path, name: &str| fs::rename(from, dir.path().join(name)).unwrap();
        place(&next.certificate, "server.pem");
        assert!(server_name(&listener, &client).await.unwrap().contains("CN=renewed"), "the previous ones stay in use");
        assert!(server.reload().unwrap_err().message().contains("do not match"));
        place(&next.key, "server.key.pem");
        assert!(server_name(&listener, &client).await.unwrap().contains("CN=next"));
        server.reload().unwrap();
    });
}

#[test]
fn clients_trust_the_authorities_in_the_current_file() {
    with_dir(async |dir| {
        let (authority, other) = (Authority::new(dir.path(), "authority"), Authority::new(dir.path(), "other"));
        let (server, client) = (server(authority.server(Age::Valid)), client(other.client(None)));
        let listener = Listener::bind(&local(true), Some(&server)).await.unwrap();
        assert_eq!(server_name(&listener, &client).await.unwrap_err().kind(), ErrorKind::Denied);
        fs::copy(&authority.ca, &other.ca).unwrap();
        assert!(server_name(&listener, &client).await.is_ok());
    });
}

#[test]
fn invalid_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let good = authority.issue("server", "server", &["localhost"], Age::Valid);
    let other = authority.issue("other", "other", &["localhost"], Age::Valid);
    let none = dir.path().join("none.pem");
    let junk = dir.path().join("junk.pem");
    fs::write(&junk, "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n").unwrap();
    let huge = dir.path().join("huge.pem");
    fs::write(&huge, vec![b'x'; (1 << 20) + 1]).unwrap();
    let cases = [
        (Identity { certificate: none.clone(), ..good.clone() }, ErrorKind::NotFound, "none.pem"),
        (Identity { key: none, ..good.clone() }, ErrorKind::NotFound, "none.pem"),
        (Identity { certificate: junk, ..good.clone() }, ErrorKind::Invalid, "junk.pem has damaged certificates"),
        (Identity { certificate: huge, ..good.clone() }, ErrorKind::TooLarge, "huge.pem"),
        (Identity { key: good.certificate.clone(), ..good.clone() }, ErrorKind::Invalid, "no private key"),
        (Identity { certificate: good.key.clone(), ..good.clone() }, ErrorKind::Invalid, "no certificate"),
        (Identity { key: other.key, ..good }, ErrorKind::Invalid, "do not match"),
    ];
    for (identity, kind, words) in cases {
        let error = Server::load(ServerFiles { identity, clients: None }).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(words), "{error}");
    }
}
