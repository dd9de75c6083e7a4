//! Operations as the Java half calls them, without a virtual machine.

use model::{ClassId, ErrorKind, FieldNumber, Kind, Object, Oid, RecordBuilder, RecordRef, Value, limits};

use super::*;
use crate::objects::write_object;
use crate::operation::{
    Attempt, ClientEntry, ClientLife, ClientObject, ClientSchema, ClientStream, Stream, TransactionObject,
    TransactionPath,
};

/// The reply of an operation: what follows the byte for success, or the kind and the message of an error.
fn call(handle: u64, operation: i32, write: impl FnOnce(&mut Writer)) -> Result<Reader, (ErrorKind, String)> {
    let mut request = Writer::default();
    write(&mut request);
    let mut reply = Reader::new(perform_and_wait(handle as i64, operation, request.into_bytes()));
    match reply.u8().unwrap() {
        0 => Ok(reply),
        _ => Err((ErrorKind::from_code(reply.u8().unwrap()), reply.string().unwrap())),
    }
}

fn with_default_options(request: &mut Writer) {
    (0..3).for_each(|_| request.u64(0));
    request.bool(true);
    request.string("");
    request.bool(false);
    request.string("");
    (0..4).for_each(|_| request.bool(false));
}

/// A client of a cluster in memory, which ends with it.
struct TestClient(u64);

impl TestClient {
    fn new() -> Self {
        Self(call(0, ClientLife::InMemory as i32, with_default_options).unwrap().u64().unwrap())
    }

    fn begin(&self) -> u64 {
        call(self.0, ClientObject::Begin as i32, |request| request.u8(0)).unwrap().u64().unwrap()
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        call(self.0, ClientLife::Shutdown as i32, |_| ()).unwrap();
    }
}

fn commit(transaction: u64) -> u8 {
    call(transaction, TransactionObject::Commit as i32, |_| ()).unwrap().u8().unwrap()
}

fn get(client: u64, oid: Oid) -> Option<(u8, Vec<u8>)> {
    let mut reply = call(client, ClientObject::Get as i32, |request| request.oid(oid)).unwrap();
    let object = reply.optional(|reply| {
        let kind = reply.u8()?;
        assert!(reply.list(|reply| Ok((reply.bytes()?, reply.bytes()?)))?.is_empty());
        assert_eq!(reply.u8()?, 0);
        Ok((kind, reply.bytes()?.to_vec()))
    });
    object.unwrap()
}

#[test]
fn blob_is_created_bound_and_read() {
    let client = TestClient::new();
    let transaction = client.begin();
    let blob = Object::blob("Hello".into());
    let temporary = call(transaction, TransactionObject::Create as i32, |request| {
        request.u32(0);
        write_object(request, &blob);
        request.u8(0);
    });
    let temporary = temporary.unwrap().oid().unwrap();
    assert!(temporary.is_temporary());
    call(transaction, TransactionPath::Bind as i32, |request| {
        request.string("/hello");
        request.oid(temporary);
    })
    .unwrap();
    assert_eq!(commit(transaction), 0);
    let real = call(transaction, TransactionObject::RealOids as i32, |request| request.list([temporary], Writer::oid))
        .unwrap();
    let real = real.clone_list();
    let named = call(client.0, ClientEntry::Resolve as i32, |request| request.string("/hello"))
        .unwrap()
        .optional(Reader::oid)
        .unwrap();
    assert_eq!(real, [named]);
    assert_eq!(get(client.0, named.unwrap()), Some((Kind::Blob as u8, b"Hello".to_vec())));
}

impl Reader {
    fn clone_list(mut self) -> Vec<Option<Oid>> {
        self.list(|reply| reply.optional(Self::oid)).unwrap()
    }
}

#[test]
fn records_are_created_in_one_call_under_permanent_identifiers() {
    let client = TestClient::new();
    call(client.0, ClientSchema::Define as i32, |request| {
        request.count(1);
        request.string("Person");
        request.bool(false);
        request.count(1);
        request.string("name");
        request.u8(5);
        request.bool(true);
        request.bool(false);
    })
    .unwrap();
    let mut schema = call(client.0, ClientSchema::Schema as i32, |_| ()).unwrap();
    assert_eq!(schema.u32().unwrap(), 1);
    let class = schema.u32().unwrap();
    assert_eq!(schema.string().unwrap(), "Person");

    let transaction = client.begin();
    let oids = call(transaction, TransactionObject::Allocate as i32, |request| {
        request.u32(class);
        request.list([20, 20], |request, len| {
            request.u32(len);
            request.u8(0);
        });
    });
    let oids = oids.unwrap().list(Reader::oid).unwrap();
    assert!(oids.len() == 2 && oids.iter().all(|oid| !oid.is_temporary() && oid.class() == ClassId(class)));
    let record = |name: &str| {
        let mut record = RecordBuilder::new();
        record.set(FieldNumber(1), name).unwrap();
        Object::record(ClassId(class), record.build().unwrap())
    };
    let written = |oids: &[Oid], code| {
        let changes: Vec<(Oid, &str)> = oids.iter().copied().zip(["Ann", "Bob"]).collect();
        call(transaction, TransactionObject::Write as i32, |request| {
            request.list(changes, |request, (oid, name)| {
                request.oid(oid);
                request.u8(code);
                request.u32(class);
                write_object(request, &record(name));
            });
        })
    };
    written(&oids, 2).unwrap();
    assert_eq!(commit(transaction), 0);

    let mut found = call(client.0, ClientStream::Query as i32, |request| {
        request.string("select name from Person where name >= :from order by name");
        request.count(1);
        request.string("from");
        request.value(&Value::from("B")).unwrap();
        request.bool(false);
    });
    let found = found.as_mut().unwrap();
    let rows = found.u64().unwrap();
    assert_eq!(found.list(Reader::string).unwrap(), ["name"]);
    let mut found = call(rows, Stream::RowsNext as i32, |request| request.u32(10)).unwrap();
    assert_eq!((found.u32().unwrap(), found.u8().unwrap()), (1, 1));
    assert_eq!(found.list(Reader::value).unwrap(), [Value::from("Bob")]);
    assert!(found.bool().unwrap());

    let (_, bytes) = get(client.0, oids[0]).unwrap();
    assert_eq!(
        RecordRef::new(&bytes).unwrap().field(FieldNumber(1)).unwrap().unwrap().to_value().unwrap(),
        "Ann".into()
    );
    // An identifier of another transaction is not one that this one may create.
    let other = client.begin();
    let refused = call(other, TransactionObject::Write as i32, |request| {
        request.list([oids[0]], |request, oid| {
            request.oid(oid);
            request.u8(2);
            request.u32(class);
            write_object(request, &record("Cay"));
        });
    });
    assert_eq!(refused.unwrap_err().0, ErrorKind::Invalid);
}

#[test]
fn event_of_a_damaged_node_has_a_kind_in_java() {
    let java = std::fs::read_to_string("../../java/client/src/main/java/io/mortar/Event.java").unwrap();
    let node = model::NodeId(3);
    for (event, name) in [
        (client::Event::NodeDamaged { node, brick: 1, damage: "a row".to_owned() }, "NODE_DAMAGED"),
        (client::Event::NodeRecovered { node, brick: 1 }, "NODE_RECOVERED"),
        (client::Event::Missed(1), "MISSED"),
    ] {
        let constant = format!("{name}({})", operations::event_code(&event));
        assert!(java.contains(&constant), "{constant}");
    }
}

#[test]
fn reply_with_objects_is_bounded_in_bytes() {
    let client = TestClient::new();
    let transaction = client.begin();
    let create = |len: usize| {
        let created = call(transaction, TransactionObject::Create as i32, |request| {
            request.u32(0);
            write_object(request, &Object::blob(vec![7; len].into()));
            request.u8(0);
        });
        created.unwrap().oid().unwrap()
    };
    let blobs = [create(3 << 20), create(3 << 20), create(3 << 20), create(1)];
    let sizes = |oids: &[Oid]| {
        let mut reply = call(transaction, TransactionObject::Get as i32, |request| {
            request.list(oids.iter().copied(), Writer::oid);
            request.bool(false);
        })
        .unwrap();
        let objects = reply.list(|reply| {
            reply.optional(|reply| {
                reply.u8()?;
                reply.u32()?;
                reply.u8()?;
                Ok(reply.bytes()?.len())
            })
        });
        objects.unwrap()
    };
    assert_eq!(sizes(&blobs), [Some(3 << 20); 2]);
    assert_eq!(sizes(&blobs[2..]), [Some(3 << 20), Some(1)]);
    assert!(sizes(&[]).is_empty());
}

#[test]
fn type_nests_as_deep_as_values() {
    let client = TestClient::new();
    let define = |levels: usize| {
        call(client.0, ClientSchema::Define as i32, |request| {
            request.count(1);
            request.string(&format!("Nested{levels}"));
            request.bool(false);
            request.count(1);
            request.string("field");
            (0..levels).for_each(|_| request.u8(10));
            request.u8(1);
            request.bool(false);
            request.bool(false);
        })
    };
    define(limits::NESTING).unwrap();
    assert_eq!(define(limits::NESTING + 1).unwrap_err().0, ErrorKind::TooLarge);
}

#[test]
fn attempts_run_again_after_a_conflict() {
    let client = TestClient::new();
    let create = client.begin();
    let oid = call(create, TransactionObject::Create as i32, |request| {
        request.u32(0);
        write_object(request, &Object::blob("0".into()));
        request.u8(0);
    });
    let oid = oid.unwrap().oid().unwrap();
    assert_eq!(commit(create), 0);
    let oid = call(create, TransactionObject::RealOids as i32, |request| request.list([oid], Writer::oid))
        .unwrap()
        .clone_list()[0]
        .unwrap();

    let attempts = call(client.0, ClientObject::Attempts as i32, |_| ()).unwrap().u64().unwrap();
    let read_and_write = |transaction, text: &'static str| {
        call(transaction, TransactionObject::Get as i32, |request| {
            request.list([oid], Writer::oid);
            request.bool(false);
        })
        .unwrap();
        call(transaction, TransactionObject::Write as i32, |request| {
            request.list([oid], |request, oid| {
                request.oid(oid);
                request.u8(1);
                request.u32(0);
                write_object(request, &Object::blob(text.into()));
            });
        })
        .unwrap();
    };
    let end = |transaction: u64| {
        let ended = call(attempts, Attempt::End as i32, |request| {
            request.u64(transaction);
            request.bool(false);
            request.u8(0);
            request.string("");
        });
        ended.unwrap().bool().unwrap()
    };
    let first = call(attempts, Attempt::Begin as i32, |_| ()).unwrap().u64().unwrap();
    read_and_write(first, "first");
    let other = client.begin();
    read_and_write(other, "other");
    assert_eq!(commit(other), 0);
    assert!(!end(first), "it conflicts");
    let second = call(attempts, Attempt::Begin as i32, |_| ()).unwrap().u64().unwrap();
    read_and_write(second, "second");
    assert!(end(second));
    assert_eq!(get(client.0, oid).unwrap().1, b"second");
}

#[test]
fn exception_of_a_body_counts_only_if_its_reads_could_be_checked() {
    let client = call(0, ClientLife::InMemory as i32, with_default_options).unwrap().u64().unwrap();
    let attempts = call(client, ClientObject::Attempts as i32, |_| ()).unwrap().u64().unwrap();
    let end = |kind: u8| {
        let transaction = call(attempts, Attempt::Begin as i32, |_| ()).unwrap().u64().unwrap();
        call(attempts, Attempt::End as i32, |request| {
            request.u64(transaction);
            request.bool(true);
            request.u8(kind);
            request.string("the body has failed");
        })
    };
    for kind in [0, ErrorKind::NotFound as u8] {
        assert!(end(kind).unwrap().bool().unwrap(), "the caller throws its exception again");
    }
    call(client, ClientLife::Shutdown as i32, |_| ()).unwrap();
    for kind in [0, ErrorKind::NotFound as u8] {
        let (kind, message) = end(kind).unwrap_err();
        assert!(kind == ErrorKind::Invalid && message.contains("closed"), "{message}");
    }
}

#[test]
fn freed_handles_and_those_of_another_kind_are_errors() {
    let client = TestClient::new();
    let transaction = client.begin();
    release(transaction as i64);
    release(transaction as i64);
    let (kind, message) = call(transaction, TransactionPath::Root as i32, |_| ()).unwrap_err();
    assert!(kind == ErrorKind::Invalid && message.contains("closed"), "{message}");
    let (kind, message) = call(client.0, TransactionPath::Root as i32, |_| ()).unwrap_err();
    assert!(kind == ErrorKind::Invalid && message.contains("a client"), "{message}");
    for handle in [0, u64::MAX, 1 << 63] {
        assert_eq!(call(handle, TransactionPath::Root as i32, |_| ()).unwrap_err().0, ErrorKind::Invalid);
    }
}

#[test]
fn damaged_requests_are_errors() {
    let client = TestClient::new();
    let transaction = client.begin();
    for operation in (-1..120)
        .chain([i32::MIN, i32::MAX])
        .filter(|code| ![ClientLife::InMemory as i32, ClientLife::Shutdown as i32].contains(code))
    {
        for bytes in [&[][..], &[0xff; 3], &[0xff; 40], &[0; 2], &[0; 64]] {
            for handle in [client.0, transaction] {
                // It may succeed, but only if the request is one.
                let reply = perform_and_wait(handle as i64, operation, bytes.to_vec());
                assert!(
                    reply[0] == 0 || ErrorKind::from_code(reply[1]) != ErrorKind::Internal,
                    "{operation} {bytes:?}"
                );
            }
        }
    }
}

#[test]
fn call_that_waits_for_a_change_ends_when_its_handle_is_released() {
    let client = TestClient::new();
    let watch =
        call(client.0, ClientStream::Watch as i32, |request| request.list([], Writer::oid)).unwrap().u64().unwrap();
    let events = call(client.0, ClientStream::Events as i32, |_| ()).unwrap().u64().unwrap();
    // The first event is there.
    call(events, Stream::EventsNext as i32, |_| ()).unwrap();
    for (handle, operation) in [(watch, Stream::WatchNext as i32), (events, Stream::EventsNext as i32)] {
        let waiting: Vec<_> = (0..3)
            .map(|_| std::thread::spawn(move || call(handle, operation, |_| ()).map(drop).unwrap_err().0))
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(50));
        release(handle as i64);
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), ErrorKind::Invalid);
        }
    }
}

#[test]
fn started_calls_complete() {
    let native = native().unwrap();
    native.completed.push(7, encode_reply(Err(Error::new(ErrorKind::NotFound, "nothing"))));
    native.completed.push(8, encode_reply(Ok(vec![0, 5])));
    let mut batch = Reader::new(native.completed.deliver(|batch| Ok::<_, ()>(batch.to_vec())).unwrap());
    let replies = batch.list(|batch| Ok((batch.u64()?, batch.bytes()?))).unwrap();
    assert_eq!((replies[0].0, replies[0].1[..2].to_vec()), (7, vec![1, ErrorKind::NotFound as u8]));
    assert_eq!((replies[1].0, replies[1].1.to_vec()), (8, vec![0, 5]));
}
