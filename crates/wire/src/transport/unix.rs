//! Unix sockets: the shortest way between processes of one machine.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::net::sockopt;
use tokio::net::{UnixListener, UnixStream};

/// Bytes that a socket may hold on their way. The system's default holds less than one large frame; the system cuts
/// this down to what it allows.
const BUFFER: usize = 1 << 20;

pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    sockopt::set_socket_send_buffer_size(&stream, BUFFER)?;
    Ok(stream)
}

/// A listening socket and the file that names it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens at `path`. A socket file that nobody answers behind, left by a crash, is replaced.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        Ok(Self { listener, path: path.to_owned() })
    }

    pub(super) async fn accept(&self) -> io::Result<std::os::unix::net::UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        sockopt::set_socket_send_buffer_size(&stream, BUFFER)?;
        stream.into_std()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether `path` is a socket that refuses connections: its server is gone.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let answer = std::os::unix::net::UnixStream::connect(path);
    is_socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Whoever replaced the file in the meantime keeps theirs only if the path was re-bound; a leftover file is
        // harmless, since the next server replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}
