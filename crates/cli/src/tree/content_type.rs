//! The media type of a file: by its extension, else by its first bytes.

use std::path::Path;

/// How many of a file's first bytes the guess needs.
pub(crate) const SNIFF_BYTES: usize = 4096;

/// The media type of the file at `path` that begins with `head`.
pub(crate) fn guess(path: &Path, head: &[u8]) -> String {
    if let Some(by_extension) = mime_guess::from_path(path).first_raw() {
        return by_extension.to_owned();
    }
    let head = &head[..head.len().min(SNIFF_BYTES)];
    match infer::get(head) {
        Some(by_content) => by_content.mime_type().to_owned(),
        None if is_text(head) => "text/plain".to_owned(),
        None => "application/octet-stream".to_owned(),
    }
}

/// Whether the bytes are UTF-8 that a person could read; a character may be cut off at the end.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or("\0"),
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_takes_precedence_over_the_content() {
        for (path, head, expected) in [
            ("a.html", &b"\x00"[..], "text/html"),
            ("photo.JPG", b"", "image/jpeg"),
            ("picture", b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR", "image/png"),
            ("COPYING", b"GNU GENERAL PUBLIC LICENSE\n", "text/plain"),
            ("cut", "ab\u{e9}".as_bytes().split_last().unwrap().1, "text/plain"),
            ("noise", b"\x01\x02\xfe\x00", "application/octet-stream"),
            ("empty", b"", "application/octet-stream"),
        ] {
            assert_eq!(guess(Path::new(path), head), expected, "{path}");
        }
    }
}
