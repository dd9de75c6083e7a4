//! The attributes of an imported file.
//!
//! | key | value | on |
//! | --- | --- | --- |
//! | `posix.mode` | the permission bits in octal: `0644` | files, directories |
//! | `posix.mtime` | seconds since 1970 with nine decimals: `1700000000.000000001` | all |
//! | `posix.type` | `symlink`; absent on files and directories | symbolic links |
//! | `content-type` | the media type: `text/plain` | files |

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use model::{Oid, Op};

/// The key of the media type; `put` sets it too.
pub(crate) const CONTENT_TYPE: &str = "content-type";
/// The key of the permission bits.
pub(crate) const MODE: &str = "posix.mode";
/// The key of the time of the last change.
pub(crate) const MTIME: &str = "posix.mtime";
/// The key that marks a symbolic link.
pub(crate) const TYPE: &str = "posix.type";
/// The value of [`TYPE`] on a symbolic link.
pub(crate) const SYMLINK: &str = "symlink";

/// When a file last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mtime {
    /// Seconds since 1970-01-01T00:00Z.
    pub(crate) seconds: i64,
    /// Nanoseconds after that.
    pub(crate) nanoseconds: u32,
}

impl fmt::Display for Mtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

impl FromStr for Mtime {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (seconds, decimals) = text.split_once('.').ok_or(())?;
        if decimals.len() != 9 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
            return Err(());
        }
        Ok(Self { seconds: seconds.parse().map_err(|_| ())?, nanoseconds: decimals.parse().map_err(|_| ())? })
    }
}

/// The attributes of one file, directory or link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The permission bits; links have none of their own.
    pub(crate) mode: Option<u32>,
    /// When it last changed.
    pub(crate) mtime: Option<Mtime>,
    /// Whether it is a symbolic link.
    pub(crate) symlink: bool,
    /// The media type of its content.
    pub(crate) content_type: Option<String>,
}

impl Attributes {
    /// Reads the attributes of an object. Other attributes and invalid values are ignored.
    pub(crate) fn read(pairs: &[(Bytes, Bytes)]) -> Self {
        let mut attributes = Self::default();
        for (key, value) in pairs {
            let (Ok(key), Ok(value)) = (std::str::from_utf8(key), std::str::from_utf8(value)) else { continue };
            match key {
                MODE => attributes.mode = u32::from_str_radix(value, 8).ok().map(|mode| mode & 0o7777),
                MTIME => attributes.mtime = value.parse().ok(),
                TYPE => attributes.symlink = value == SYMLINK,
                CONTENT_TYPE => attributes.content_type = Some(value.to_owned()),
                _ => {}
            }
        }
        attributes
    }

    /// The operations that change the attributes of `oid` from `old` to these.
    pub(crate) fn changes(&self, oid: Oid, old: &Self) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut change = |key: &'static str, new: Option<String>, old: Option<String>| match new {
            Some(value) if Some(&value) != old.as_ref() => {
                ops.push(Op::SetAttribute { oid, key: Bytes::from_static(key.as_bytes()), value: value.into() });
            }
            None if old.is_some() => {
                ops.push(Op::RemoveAttribute { oid, key: Bytes::from_static(key.as_bytes()) });
            }
            _ => {}
        };
        change(MODE, self.mode.map(octal), old.mode.map(octal));
        change(MTIME, self.mtime.map(|t| t.to_string()), old.mtime.map(|t| t.to_string()));
        change(TYPE, self.kind(), old.kind());
        change(CONTENT_TYPE, self.content_type.clone(), old.content_type.clone());
        ops
    }

    fn kind(&self) -> Option<String> {
        self.symlink.then(|| SYMLINK.to_owned())
    }
}

fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (Bytes, Bytes) {
        (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
    }

    #[test]
    fn attributes_round_trip() {
        let attributes = Attributes {
            mode: Some(0o4755),
            mtime: Some(Mtime { seconds: -5, nanoseconds: 7 }),
            symlink: false,
            content_type: Some("text/plain".into()),
        };
        let pairs: Vec<(Bytes, Bytes)> = attributes
            .changes(Oid::MIN, &Attributes::default())
            .into_iter()
            .map(|op| match op {
                Op::SetAttribute { key, value, .. } => (key, value),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pairs, [pair(MODE, "4755"), pair(MTIME, "-5.000000007"), pair(CONTENT_TYPE, "text/plain")]);
        assert_eq!(Attributes::read(&pairs), attributes);
    }

    #[test]
    fn only_different_attributes_are_written() {
        let link = Attributes { symlink: true, ..Attributes::default() };
        assert_eq!(link.changes(Oid::MIN, &link), []);
        assert!(matches!(&Attributes::default().changes(Oid::MIN, &link)[..], [Op::RemoveAttribute { .. }]));
    }

    #[test]
    fn invalid_values_are_ignored() {
        let pairs = [pair(MODE, "rwx"), pair(MTIME, "1.5"), pair(TYPE, "door"), pair("other", "x")];
        assert_eq!(Attributes::read(&pairs), Attributes::default());
    }
}
