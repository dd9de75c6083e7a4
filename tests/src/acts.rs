//! What transactions of histories (docs/history.md) do with objects, and the words for it on the input of a client process.

use std::fmt;

use check::history::Step;
use client::{Error, ErrorKind, Transaction};

use crate::keyed_objects::KeyedObject;

/// Lists of this length are only read.
const MAX_LIST_LEN: usize = 400;

/// The operation of one step of a transaction on an object.
#[derive(Clone, Debug)]
pub enum Act {
    /// Reads a list.
    Read(KeyedObject),
    /// Appends this element.
    Append(KeyedObject, i64),
    /// Reads a balance.
    Balance(KeyedObject),
    /// Adds this amount to a balance.
    Add(KeyedObject, i64),
    /// Writes the current value again.
    Touch(KeyedObject),
}

impl Act {
    /// The object that it uses.
    #[must_use]
    pub fn object(&self) -> &KeyedObject {
        let (Self::Read(kept) | Self::Append(kept, _) | Self::Balance(kept) | Self::Add(kept, _) | Self::Touch(kept)) =
            self;
        kept
    }

    /// Whether it changes the object.
    #[must_use]
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Read(_) | Self::Balance(_))
    }

    /// The act that a word on the input of a client process means. `object` finds an object by its key.
    #[must_use]
    pub fn parse(word: &str, object: impl Fn(&str) -> Option<KeyedObject>) -> Option<Self> {
        let mut parts = word.split(':');
        let (what, kept) = (parts.next()?, object(parts.next()?)?);
        let number = parts.next().map(str::parse::<i64>).transpose().ok()?;
        match (what, number, parts.next()) {
            ("read", None, None) => Some(Self::Read(kept)),
            ("balance", None, None) => Some(Self::Balance(kept)),
            ("append", Some(element), None) => Some(Self::Append(kept, element)),
            ("add", Some(amount), None) => Some(Self::Add(kept, amount)),
            _ => None,
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.object().key;
        match self {
            Self::Read(_) => write!(f, "read:{key}"),
            Self::Append(_, element) => write!(f, "append:{key}:{element}"),
            Self::Balance(_) => write!(f, "balance:{key}"),
            Self::Add(_, amount) => write!(f, "add:{key}:{amount}"),
            Self::Touch(_) => write!(f, "add:{key}:0"),
        }
    }
}

/// Carries out acts in a transaction, and adds the steps. `ahead` is whether to announce writes before reading the objects.
///
/// # Errors
/// Those of the transaction; [`ErrorKind::Corrupt`] for a state that no client should see.
pub async fn run_acts(t: &Transaction, acts: &[Act], ahead: bool, steps: &mut Vec<Step>) -> client::Result<()> {
    let torn = |what: String| Error::new(ErrorKind::Corrupt, what);
    for act in acts {
        let (kept, writes) = (act.object(), act.writes());
        let object = if writes && ahead { t.get_for_update(kept.oid).await? } else { t.get(kept.oid).await? };
        let KeyedObject { key, oid, .. } = kept;
        match act {
            Act::Read(_) => steps.push(Step::read_list(key, kept.elements(object.as_ref()).map_err(torn)?)),
            Act::Append(_, element) => {
                let mut all = kept.elements(object.as_ref()).map_err(torn)?;
                steps.push(Step::read_list(key, all.clone()));
                if all.len() < MAX_LIST_LEN {
                    all.push(*element);
                    t.put(*oid, kept.with_elements(object.as_ref(), &all).map_err(torn)?).await?;
                    steps.push(Step::append(key, *element));
                }
            }
            Act::Balance(_) => steps.push(Step::read(key, kept.value(object.as_ref()).map_err(torn)?)),
            Act::Add(_, amount) => {
                let balance = kept.value(object.as_ref()).map_err(torn)?;
                steps.push(Step::read(key, balance));
                let new = balance.unwrap_or(0) + amount;
                t.put(*oid, kept.with_value(object.as_ref(), new).map_err(torn)?).await?;
                steps.push(Step::write(key, new));
            }
            Act::Touch(_) => {
                let there = object.ok_or_else(|| torn(format!("{key} does not exist")))?;
                t.put(*oid, there).await?;
            }
        }
    }
    Ok(())
}
