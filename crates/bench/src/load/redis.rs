//! Redis: RESP version 2.

use super::{Connection, Data, Protocol, Reply, Requests};
use crate::Result;

/// Replies to gets or puts of values of one size.
pub(crate) struct Redis {
    /// The beginning of the reply to a get, or the whole reply to a put.
    head: Vec<u8>,
    /// Bytes of value; none in a put's reply.
    size: Option<usize>,
}

impl Redis {
    pub(crate) fn gets(size: usize) -> Self {
        Self { head: format!("${size}\r\n").into_bytes(), size: Some(size) }
    }

    pub(crate) fn puts() -> Self {
        Self { head: b"+OK\r\n".to_vec(), size: None }
    }
}

/// `GET` for each key.
pub(crate) fn gets(data: &Data) -> Requests<'_> {
    Requests::gets(data, |key, out| {
        out.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n$12\r\nkey:{key:08}\r\n").as_bytes())
    })
}

/// `SET` for each key.
pub(crate) fn puts(data: &Data) -> Requests<'_> {
    let size = data.size();
    let head = move |key, out: &mut Vec<u8>| {
        out.extend_from_slice(format!("*3\r\n$3\r\nSET\r\n$12\r\nkey:{key:08}\r\n${size}\r\n").as_bytes());
    };
    Requests::puts(data, head, b"\r\n")
}

impl Protocol for Redis {
    fn open(&self, _number: usize, _: &mut Connection) -> Result<()> {
        Ok(())
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        let head = self.head.len();
        if !input.starts_with(&self.head[..head.min(input.len())]) {
            return Err(format!("Redis answered {}", String::from_utf8_lossy(&input[..input.len().min(80)])).into());
        }
        let len = head + self.size.map_or(0, |size| size + 2);
        if input.len() < len {
            return Ok(None);
        }
        Ok(Some(Reply { len, key: None, value: self.size.map(|size| &input[head..head + size]) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_reply_is_not_read() {
        let redis = Redis::gets(3);
        assert_eq!(redis.reply(b"$3\r\nab").unwrap(), None);
        let reply = redis.reply(b"$3\r\nabc\r\n$3").unwrap().unwrap();
        assert_eq!((reply.len, reply.value), (9, Some(b"abc".as_slice())));
        assert!(redis.reply(b"$-1\r\n").is_err());
        assert_eq!(Redis::puts().reply(b"+OK\r\n").unwrap().unwrap().len, 5);
    }
}
