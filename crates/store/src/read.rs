//! Reading: the same calls on the newest state and on a snapshot.

pub(crate) mod contents;
pub(crate) mod layers;
pub(crate) mod rows;
pub(crate) mod state;
pub(crate) mod view;

use model::{ContentId, Result};

pub use contents::{Piece, Pieces};

use crate::read::layers::Layers;
use crate::read::state::ReadState;
use crate::rows::row::ContentHead;

/// A readable state: provides the layers and the position.
pub(crate) trait Readable {
    fn state(&self) -> &ReadState;
    /// Reads single rows. Several rows may be of different states.
    fn read_row<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T>;
    /// Reads several rows of one state.
    fn read_state<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T>;
    /// The head of a content.
    fn head(&self, id: ContentId) -> Result<Option<ContentHead>> {
        self.read_state(|layers| Ok(layers.content(id)?.map(|content| content.head)))
    }
}
