//! The fuzz target of filters: decoding, and evaluation on any record.

use model::{Filter, RecordRef};

pub(crate) fn run(data: &[u8]) {
    let Some((&len, rest)) = data.split_first_chunk() else { return };
    let (filter, record) = rest.split_at(usize::from(u16::from_be_bytes(len)).min(rest.len()));
    let Ok(decoded) = Filter::decode(filter) else { return };
    assert_eq!(decoded.encode().expect("a decoded filter is within the limits"), filter, "a filter has one encoding");
    let Ok(damaged) = RecordRef::new(record) else { return };
    let _ = decoded.matches(&damaged);
    if let Ok(valid) = RecordRef::validate(record) {
        let answer = decoded.matches(&valid).expect("a filter can be evaluated on any valid record");
        // The negation may exceed the limit of levels.
        if let Ok(opposite) = decoded.negate().matches(&valid) {
            assert_ne!(answer, opposite, "either a filter or its negation is true");
        }
    }
}
