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
use model::Object;

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
    /// The attributes of an object. Other attributes and invalid values are ignored.
    pub(crate) fn of(object: &Object) -> Self {
        let mut attributes = Self::default();
        for (key, value) in object.attributes() {
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

    /// Gives these attributes to an object. Those that are absent here are removed; other attributes stay.
    pub(crate) fn apply(&self, object: &mut Object) {
        let pairs = [
            (MODE, self.mode.map(octal)),
            (MTIME, self.mtime.map(|time| time.to_string())),
            (TYPE, self.kind()),
            (CONTENT_TYPE, self.content_type.clone()),
        ];
        for (key, value) in pairs {
            object.set_attribute(Bytes::from_static(key.as_bytes()), value.map(Bytes::from));
        }
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

    fn object(pairs: &[(&'static str, &'static str)]) -> Object {
        let mut object = Object::blob(Bytes::new());
        for (key, value) in pairs {
            object.set_attribute(Bytes::from(*key), Some(Bytes::from(*value)));
        }
        object
    }

    #[test]
    fn attributes_round_trip() {
        let attributes = Attributes {
            mode: Some(0o4755),
            mtime: Some(Mtime { seconds: -5, nanoseconds: 7 }),
            symlink: false,
            content_type: Some("text/plain".into()),
        };
        let mut written = object(&[]);
        attributes.apply(&mut written);
        assert_eq!(written, object(&[(MODE, "4755"), (MTIME, "-5.000000007"), (CONTENT_TYPE, "text/plain")]));
        assert_eq!(Attributes::of(&written), attributes);
    }

    #[test]
    fn absent_attributes_are_removed_and_others_stay() {
        let mut link = object(&[(TYPE, SYMLINK), ("other", "x")]);
        Attributes::default().apply(&mut link);
        assert_eq!(link, object(&[("other", "x")]));
    }

    #[test]
    fn invalid_values_are_ignored() {
        let object = object(&[(MODE, "rwx"), (MTIME, "1.5"), (TYPE, "door"), ("other", "x")]);
        assert_eq!(Attributes::of(&object), Attributes::default());
    }
}
