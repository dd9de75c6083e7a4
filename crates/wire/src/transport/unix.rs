//! Unix sockets: between processes of one machine.
//!
//! The file of a socket has the mode 0600, whatever the umask: only processes of the same user, and root, can connect.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::sockopt;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::BACKLOG;

/// The mode of a socket's file.
const MODE: u32 = 0o600;

/// Bytes of a socket's send buffer. The system's default is less than one large frame. The system lowers this number to its
/// limit.
const BUFFER: usize = 1 << 20;

pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    enlarge_buffer(&stream)?;
    Ok(stream)
}

/// Gives a socket a send buffer for large frames.
fn enlarge_buffer(stream: &UnixStream) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(stream, BUFFER)?)
}

/// A listening socket and the file that names it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens at `path`. A socket file that a crashed server left is replaced.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let listener = match listen(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                fs::remove_file(path)?;
                listen(path)?
            }
            bound => bound?,
        };
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Waits for the next connection; also returns the user that its process runs as.
    pub(super) async fn accept(&self) -> io::Result<(std::os::unix::net::UnixStream, u32)> {
        let (stream, _) = self.listener.accept().await?;
        enlarge_buffer(&stream)?;
        let uid = stream.peer_cred()?.uid();
        Ok((stream.into_std()?, uid))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // Linux creates the file with the mode of the socket, so there is no moment in which others can connect.
    rustix::fs::fchmod(socket.as_fd(), Mode::from_raw_mode(MODE))?;
    socket.bind(path)?;
    // Other systems do not, and a umask may have removed permissions.
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)
}

/// Whether `path` is a socket that refuses connections, so its server has ended.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let answer = std::os::unix::net::UnixStream::connect(path);
    is_socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A file that is left behind is harmless, since the next server replaces it.
        let _ = fs::remove_file(&self.path);
    }
}
