//! memcached: the text protocol.

use super::{Connection, Data, Protocol, Reply, Requests};
use crate::Result;

const KEY: usize = 12;
const BEFORE_KEY: &[u8] = b"VALUE ";
const END: &[u8] = b"\r\nEND\r\n";
const STORED: &[u8] = b"STORED\r\n";

/// Replies to gets or puts of values of one size.
pub(crate) struct Memcached {
    /// The text between a key and its value.
    behind_key: Vec<u8>,
    /// Bytes of value; none in a put's reply.
    size: Option<usize>,
}

impl Memcached {
    pub(crate) fn gets(size: usize) -> Self {
        Self { behind_key: format!(" 0 {size}\r\n").into_bytes(), size: Some(size) }
    }

    pub(crate) fn puts() -> Self {
        Self { behind_key: Vec::new(), size: None }
    }
}

/// `get` for each key.
pub(crate) fn gets(data: &Data) -> Requests<'_> {
    Requests::gets(data, |key, out| out.extend_from_slice(format!("get key:{key:08}\r\n").as_bytes()))
}

/// `set` for each key.
pub(crate) fn puts(data: &Data) -> Requests<'_> {
    let size = data.size();
    let head = move |key, out: &mut Vec<u8>| {
        out.extend_from_slice(format!("set key:{key:08} 0 0 {size}\r\n").as_bytes());
    };
    Requests::puts(data, head, b"\r\n")
}

impl Protocol for Memcached {
    fn open(&self, _number: usize, _: &mut Connection) -> Result<()> {
        Ok(())
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        let expected = if self.size.is_some() { BEFORE_KEY } else { STORED };
        if !input.starts_with(&expected[..expected.len().min(input.len())]) {
            return Err(unexpected_answer_error(input));
        }
        let Some(size) = self.size else {
            let whole = input.len() >= STORED.len();
            return Ok(whole.then_some(Reply { len: STORED.len(), key: None, value: None }));
        };
        let key_end = BEFORE_KEY.len() + KEY;
        let head = key_end + self.behind_key.len();
        if input.len() < head + size + END.len() {
            return Ok(None);
        }
        if input[key_end..head] != self.behind_key || input[head + size..head + size + END.len()] != *END {
            return Err(unexpected_answer_error(input));
        }
        Ok(Some(Reply { len: head + size + END.len(), key: None, value: Some(&input[head..head + size]) }))
    }
}

fn unexpected_answer_error(input: &[u8]) -> Box<dyn std::error::Error + Send + Sync> {
    format!("memcached answered {}", String::from_utf8_lossy(&input[..input.len().min(80)])).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_reply_is_not_read() {
        let memcached = Memcached::gets(3);
        let whole = b"VALUE key:00000001 0 3\r\nabc\r\nEND\r\n";
        assert_eq!(memcached.reply(&whole[..20]).unwrap(), None);
        let reply = memcached.reply(whole).unwrap().unwrap();
        assert_eq!((reply.len, reply.value), (whole.len(), Some(b"abc".as_slice())));
        assert!(memcached.reply(b"END\r\n").is_err());
        assert_eq!(Memcached::puts().reply(b"STORED\r\n").unwrap().unwrap().len, 8);
        assert!(Memcached::puts().reply(b"SERVER_ERROR out of memory\r\n").is_err());
    }
}
