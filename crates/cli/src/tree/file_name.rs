//! File names as names in a store, and back.
//!
//! Names in a store are UTF-8; file names on Linux are any bytes but `/` and NUL. Bytes that are not UTF-8 are written as `%XX`
//! (hexadecimal), and so is a `%` before two hexadecimal digits (`%25`). So every file name has exactly one name in the store, from
//! which it can be restored. All other names are unchanged.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The name in a store of one component of a path.
pub(crate) fn encode(component: &OsStr) -> String {
    let mut name = String::with_capacity(component.len());
    for chunk in component.as_bytes().utf8_chunks() {
        let valid = chunk.valid();
        for (at, character) in valid.char_indices() {
            if character == '%' && is_escape(&valid.as_bytes()[at..]) {
                name.push_str("%25");
            } else {
                name.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// The file name from which [`encode`] made `name`.
pub(crate) fn decode(name: &str) -> OsString {
    let bytes = name.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if is_escape(&bytes[at..]) {
            out.push(digit(bytes[at + 1]) << 4 | digit(bytes[at + 2]));
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    OsString::from_vec(out)
}

/// The relative path on disk for a name below the prefix, or why it has none.
///
/// Names in the store are untrusted: none must lead out of the export directory. A name that [`encode`] does not make, such as `%41` for `A`,
/// has none either: it would come back as another name, and two names could become one file.
pub(crate) fn to_path(relative: &str) -> Result<PathBuf, &'static str> {
    let mut path = PathBuf::new();
    for component in relative.split('/') {
        let name = decode(component);
        match name.as_bytes() {
            b"" => return Err("it has an empty component"),
            b"." | b".." => return Err("it has a component that is . or .."),
            bytes if bytes.contains(&b'/') || bytes.contains(&0) => return Err("a component holds a slash or NUL"),
            _ if encode(&name) != component => {
                return Err(
                    "it cannot become a file: its %XX would come back as another name; rename it with `mortar mv`",
                );
            }
            _ => path.push(name),
        }
    }
    Ok(path)
}

/// Whether the bytes begin with `%` and two hexadecimal digits.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        b'a'..=b'f' => hex - b'a' + 10,
        _ => hex - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_are_unchanged_and_other_bytes_are_escaped() {
        for (raw, name) in [
            (&b"readme.txt"[..], "readme.txt"),
            ("größe".as_bytes(), "größe"),
            (b"100%", "100%"),
            (b"50%off", "50%off"),
            (b"%41", "%2541"),
            (b"a\xffb", "a%FFb"),
            (b"%\xff", "%%FF"),
            (b"%4\xa1", "%4%A1"),
            (b"%2\xc3\xa9", "%2é"),
        ] {
            assert_eq!(encode(OsStr::from_bytes(raw)), name);
            assert_eq!(decode(name).as_bytes(), raw);
        }
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for name in ["../x", "a/../b", "a//b", "", "/etc/passwd", ".", "a/%2E%2E/b", "a%2Fb", "a%00"] {
            assert!(to_path(name).is_err(), "{name:?}");
        }
        assert_eq!(to_path("a/b%FF.txt").unwrap().as_os_str().as_bytes(), b"a/b\xff.txt");
        assert_eq!(to_path("..a/b..").unwrap(), PathBuf::from("..a/b.."));
    }

    #[test]
    fn names_that_no_file_has_become_none() {
        for name in ["%41", "a/%ff", "%C3%A9", "x%20y/z", "%FF%41", "%2f"] {
            assert!(to_path(name).is_err(), "{name:?}");
        }
        for name in ["A", "a/%FF", "é", "x y/z", "%FF%2541", "%2541", "50%off", "%%FF"] {
            assert!(to_path(name).is_ok(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn file_names_round_trip(raw in proptest::collection::vec(
            prop_oneof![Just(b'%'), 0x30_u8..0x47, 1_u8..=255], 1..40)) {
            let name = encode(OsStr::from_bytes(&raw));
            let back = decode(&name);
            prop_assert_eq!(back.as_bytes(), &raw[..]);
        }

        #[test]
        fn no_two_names_become_one_file(names in proptest::collection::vec("(%|2|5|4|f|F|é|A){1,6}", 2)) {
            if let [Ok(one), Ok(other)] = [&names[0], &names[1]].map(|name| to_path(name)) {
                prop_assert_eq!(one == other, names[0] == names[1]);
            }
        }
    }
}
