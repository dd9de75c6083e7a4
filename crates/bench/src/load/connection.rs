//! One connection of the generator: a socket with a buffer each way.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use crate::Result;
use crate::process::Address;

/// A socket with its unanswered requests.
pub(crate) struct Connection {
    socket: OwnedFd,
    address: Address,
    /// The keys of the current batch.
    pub(super) batch: Vec<usize>,
    /// Number of them that were answered.
    pub(super) answered: usize,
    pub(super) output: Vec<u8>,
    sent: usize,
    pub(super) wants_write: bool,
    input: Vec<u8>,
    /// The received and unconsumed part of `input`.
    filled: std::ops::Range<usize>,
}

impl Connection {
    /// Connects, blocking.
    pub(crate) fn dial(address: &Address) -> io::Result<Self> {
        let socket: OwnedFd = match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.into()
            }
            Address::Unix(path) => UnixStream::connect(path)?.into(),
        };
        Ok(Self {
            socket,
            address: address.clone(),
            batch: Vec::new(),
            answered: 0,
            output: Vec::new(),
            sent: 0,
            wants_write: false,
            input: vec![0; 256 << 10],
            filled: 0..0,
        })
    }

    /// Another connection to the same address.
    pub(super) fn dial_again(&self) -> io::Result<Self> {
        Self::dial(&self.address)
    }

    /// Sends all of `bytes`, blocking.
    pub(crate) fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = rustix::io::retry_on_intr(|| rustix::io::write(&self.socket, bytes))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Waits for more bytes and returns all unconsumed ones.
    pub(crate) fn wait(&mut self) -> Result<&[u8]> {
        self.fill()?;
        Ok(self.input())
    }

    pub(super) fn make_nonblocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self.socket.as_fd(), true)?)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn begin_batch(&mut self) {
        self.batch.clear();
        self.answered = 0;
        self.output.clear();
        self.sent = 0;
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Writes unsent bytes; returns false if the socket accepts no more at the moment.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.has_unsent() {
            match rustix::io::write(&self.socket, &self.output[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Reads once; returns false if nothing has arrived.
    pub(super) fn fill(&mut self) -> Result<bool> {
        if self.filled.end == self.input.len() {
            self.make_room();
        }
        loop {
            return match rustix::io::read(&self.socket, &mut self.input[self.filled.end..]) {
                Ok(0) => Err("the server closed the connection".into()),
                Ok(len) => {
                    self.filled.end += len;
                    Ok(true)
                }
                Err(Errno::AGAIN) => Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// The received and unconsumed bytes.
    pub(super) fn input(&self) -> &[u8] {
        &self.input[self.filled.clone()]
    }

    /// Consumes the first `len` bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.filled.start += len;
        assert!(self.filled.start <= self.filled.end, "more bytes were consumed than had arrived");
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
    }

    fn make_room(&mut self) {
        self.input.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        if self.filled.end == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
    }
}
