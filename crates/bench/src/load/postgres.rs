//! PostgreSQL: the extended protocol, version 3. Statements are prepared once per connection, and results are binary.

use std::time::{Duration, Instant};

use super::{Connection, Data, Protocol, Reply, Requests};
use crate::Result;
use crate::process::Address;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Postgres {
    /// Values of this size.
    Gets(usize),
    /// Inserts of this many rows with one statement, which is a transaction.
    Inserts(usize),
}

/// The table that is measured.
pub(crate) const TABLE: &str = "objects";

/// A read by primary key for each key.
pub(crate) fn gets(data: &Data) -> Requests<'_> {
    Requests::gets(data, |key, out| execute(out, &[&(key as i64).to_be_bytes()]))
}

/// A transaction for each key that inserts `rows` rows, which share the key's value.
pub(crate) fn inserts(data: &Data, rows: usize) -> Requests<'_> {
    let size = data.size() / rows;
    Requests::gets(data, move |key, out| {
        let values: Vec<&[u8]> = data.value(key).chunks_exact(size).collect();
        execute(out, &values);
    })
}

/// Appends a message of a type.
fn message(out: &mut Vec<u8>, kind: u8, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    content(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Executes the connection's statement with these parameters: bind, execute, sync.
fn execute(out: &mut Vec<u8>, parameters: &[&[u8]]) {
    message(out, b'B', |out| {
        // The unnamed portal and the statement; all parameters and results are binary.
        out.extend_from_slice(b"\0s\0");
        out.extend_from_slice(&[0, 1, 0, 1]);
        out.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            out.extend_from_slice(&(parameter.len() as u32).to_be_bytes());
            out.extend_from_slice(parameter);
        }
        out.extend_from_slice(&[0, 1, 0, 1]);
    });
    message(out, b'E', |out| out.extend_from_slice(&[0; 5]));
    message(out, b'S', |_| {});
}

/// A message: its type and content.
type Message<'a> = (u8, &'a [u8]);

/// The messages up to and including the one that the server is ready; `None` if not all have arrived.
fn messages_until_ready(input: &[u8]) -> Result<Option<Vec<Message<'_>>>> {
    let (mut messages, mut at) = (Vec::with_capacity(4), 0);
    while let Some((kind, length)) = input
        .get(at..)
        .and_then(|rest| rest.split_first_chunk::<1>())
        .and_then(|(kind, rest)| Some((kind[0], u32::from_be_bytes(*rest.first_chunk::<4>()?) as usize)))
    {
        let Some(content) = input.get(at + 5..at + 1 + length) else { return Ok(None) };
        if kind == b'E' {
            return Err(format!("PostgreSQL refuses: {}", String::from_utf8_lossy(content).replace('\0', " ")).into());
        }
        messages.push((kind, content));
        if kind == b'Z' {
            return Ok(Some(messages));
        }
        at += 1 + length;
    }
    Ok(None)
}

/// Number of bytes of these messages.
fn length(messages: &[Message<'_>]) -> usize {
    messages.iter().map(|(_, content)| content.len() + 5).sum()
}

impl Postgres {
    /// The statement.
    fn statement(self) -> String {
        match self {
            Self::Gets(_) => format!("SELECT value FROM {TABLE} WHERE id = $1"),
            Self::Inserts(rows) => {
                let values: Vec<String> = (1..=rows).map(|row| format!("(${row})")).collect();
                format!("INSERT INTO {TABLE} (value) VALUES {}", values.join(", "))
            }
        }
    }
}

/// Waits until the server is ready for more.
fn wait_ready(connection: &mut Connection) -> Result<()> {
    loop {
        let Some(messages) = messages_until_ready(connection.wait()?)? else { continue };
        let length = length(&messages);
        connection.consume(length);
        return Ok(());
    }
}

/// Opens a connection as the user `postgres`.
fn open(connection: &mut Connection) -> Result<()> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&196_608_u32.to_be_bytes());
    out.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    connection.send(&out)?;
    wait_ready(connection)
}

/// Connects as soon as the server has started.
pub(crate) fn dial(address: &Address) -> Result<Connection> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut connection = Connection::dial(address)?;
        match open(&mut connection) {
            Ok(()) => return Ok(connection),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Executes statements and waits until they are done.
pub(crate) fn run(connection: &mut Connection, sql: &str) -> Result<()> {
    let mut out = Vec::new();
    message(&mut out, b'Q', |out| {
        out.extend_from_slice(sql.as_bytes());
        out.push(0);
    });
    connection.send(&out)?;
    wait_ready(connection)
}

impl Protocol for Postgres {
    fn open(&self, _number: usize, connection: &mut Connection) -> Result<()> {
        open(connection)?;
        let mut out = Vec::new();
        message(&mut out, b'P', |out| {
            out.extend_from_slice(b"s\0");
            out.extend_from_slice(self.statement().as_bytes());
            out.extend_from_slice(&[0, 0, 0]);
        });
        message(&mut out, b'S', |_| {});
        connection.send(&out)?;
        wait_ready(connection)
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        let Some(messages) = messages_until_ready(input)? else { return Ok(None) };
        let len = length(&messages);
        let found = |kind: u8| messages.iter().find(|(this, _)| *this == kind).map(|(_, content)| *content);
        match *self {
            // A row has a count of columns, and a length before each column.
            Self::Gets(size) => match found(b'D').and_then(|row| row.get(6..)).filter(|value| value.len() == size) {
                Some(value) => Ok(Some(Reply { len, key: None, value: Some(value) })),
                None => Err(format!("PostgreSQL answered {messages:?}").into()),
            },
            Self::Inserts(rows) => {
                let expected = format!("INSERT 0 {rows}\0");
                if found(b'C') != Some(expected.as_bytes()) {
                    return Err(format!("PostgreSQL answered {messages:?}").into());
                }
                Ok(Some(Reply { len, key: None, value: None }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(out: &mut Vec<u8>) {
        message(out, b'Z', |out| out.push(b'I'));
    }

    #[test]
    fn incomplete_row_is_not_read() {
        let mut out = Vec::new();
        message(&mut out, b'2', |_| {});
        message(&mut out, b'D', |out| out.extend_from_slice(b"\0\x01\0\0\0\x03abc"));
        message(&mut out, b'C', |out| out.extend_from_slice(b"SELECT 1\0"));
        ready(&mut out);
        assert_eq!(Postgres::Gets(3).reply(&out[..out.len() - 1]).unwrap(), None);
        let reply = Postgres::Gets(3).reply(&out).unwrap().unwrap();
        assert_eq!(reply, Reply { len: out.len(), key: None, value: Some(b"abc") });
        assert!(Postgres::Gets(4).reply(&out).is_err());
    }

    #[test]
    fn other_row_counts_are_refused() {
        let mut out = Vec::new();
        message(&mut out, b'C', |out| out.extend_from_slice(b"INSERT 0 4\0"));
        ready(&mut out);
        assert_eq!(Postgres::Inserts(4).reply(&out).unwrap().unwrap().len, out.len());
        assert!(Postgres::Inserts(3).reply(&out).is_err());
        let mut refused = Vec::new();
        message(&mut refused, b'E', |out| out.extend_from_slice(b"Mno\0\0"));
        assert!(Postgres::Inserts(4).reply(&refused).is_err());
    }
}
