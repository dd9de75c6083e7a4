use model::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::{arbitrary, limits};

#[test]
fn a_query_is_built_from_its_parts() {
    let query = Query::of("Person")
        .filter(Expr::path("age").compare(Comparison::Greater, Expr::value(30)))
        .filter(Expr::path("boss.name").equals("Miles"))
        .order_by(Expr::path("name"))
        .order_by_descending(Expr::path("age"))
        .skip(10)
        .limit(5);
    let text = "from Person where age > 30 && boss.name == \"Miles\" order by name, age desc skip 10 limit 5";
    assert_eq!(query.to_string(), text);
    assert_eq!(Query::parse(text).unwrap(), query);
}

#[test]
fn size_nesting_nodes_and_names_are_bounded() {
    let nested = |levels| (1..levels).fold(Expr::path("a"), |inner, _| inner.negate());
    let of = |condition| Query::of("A").filter(condition);
    let bytes = of(nested(limits::NESTING)).encode().unwrap();
    assert_eq!(Query::decode(&bytes).unwrap(), of(nested(limits::NESTING)));
    assert_eq!(of(nested(limits::NESTING + 1)).encode().unwrap_err().kind(), ErrorKind::TooLarge);
    let forged = [&[1, 1, b'A', 2], [7u8; 100].as_slice(), &[3, 0, 0, 0, 0, 0]].concat();
    assert_eq!(Query::decode(&forged).unwrap_err().kind(), ErrorKind::TooLarge);
    let wide = |parts| of(Expr::Or(vec![Expr::this(); parts]));
    assert!(wide(limits::NODES - 1).encode().is_ok());
    assert_eq!(wide(limits::NODES).encode().unwrap_err().kind(), ErrorKind::TooLarge);
    let long = of(Expr::path(&"x".repeat(limits::NAME + 1)));
    assert_eq!(long.encode().unwrap_err().kind(), ErrorKind::TooLarge);
    let large = of(Expr::value("x".repeat(limits::QUERY)));
    assert_eq!(large.encode().unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(Query::decode(&vec![1; limits::QUERY + 1]).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// Encodings that were written once are read for ever: these may be added to, never changed.
#[test]
fn version_1_encodings_stay() {
    let fixtures: [(&str, &[u8]); 4] = [
        ("from A", &[1, 1, b'A', 0, 0, 0, 0, 0, 0]),
        (
            "from only A where a.b == 3 limit 300",
            &[1, 1, b'A', 7, 0x10, 3, 2, 1, b'a', 1, b'b', 1, 2, 3, 3, 0, 0, 0, 0, 0xac, 2, 0],
        ),
        (
            "select count(*) as n from A group by -a order by count(*) desc nulls last skip 1",
            &[1, 1, b'A', 0, 1, 0x5f, 1, b'n', 1, 8, 3, 1, 1, b'a', 1, 3, 0x5f, 1, 0],
        ),
        (
            "from A where a.any(x => x.lower() in [:p])",
            &[
                1, 1, b'A', 2, 9, 1, b'x', 3, 1, 1, b'a', 0x32, 4, 1, 2, 1, b'p', 1, 0x33, 3, 1, 1, b'x', 0, 0, 0, 0,
                0, 0,
            ],
        ),
    ];
    for (text, bytes) in fixtures {
        let query = Query::parse(text).unwrap();
        assert_eq!(query.encode().unwrap(), bytes, "{text}");
        assert_eq!(Query::decode(bytes).unwrap(), query);
    }
}

#[test]
fn bytes_that_encode_does_not_write_are_refused() {
    let cases: [(&[u8], ErrorKind, &str); 9] = [
        (&[], ErrorKind::Invalid, "cut off"),
        (&[2, 1, b'A', 0, 0, 0, 0, 0, 0], ErrorKind::Unsupported, "version is 2"),
        (&[1, 1, b'A', 8, 0, 0, 0, 0, 0], ErrorKind::Unsupported, "unknown flags"),
        (&[1, 1, b'A', 2, 0x70, 0, 0, 0, 0, 0], ErrorKind::Unsupported, "unknown kind 0x70"),
        (&[1, 1, b'A', 0, 0, 0, 0, 0, 0, 0], ErrorKind::Invalid, "left over"),
        (&[1, 1, 0xff, 0, 0, 0, 0, 0, 0], ErrorKind::Invalid, "UTF-8"),
        (&[1, 1, b'A', 0, 0, 0, 0, 0x80, 0, 0], ErrorKind::Invalid, "longer than it needs"),
        (&[1, 1, b'A', 0, 0, 0, 0, 0, 2, 1, b'b', 1, 0, 1, b'a', 1, 0], ErrorKind::Invalid, "out of order"),
        (&[1, 1, b'A', 2, 1, 1, 0xff, 0, 0, 0, 0, 0], ErrorKind::Invalid, "a value in it"),
    ];
    for (bytes, kind, why) in cases {
        let error = Query::decode(bytes).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(why), "{bytes:?}: {error}, not {why:?}");
    }
}

proptest! {
    #[test]
    fn queries_round_trip(query in arbitrary::query_with_parameters()) {
        let bytes = query.encode().unwrap();
        prop_assert_eq!(Query::decode(&bytes).unwrap(), query);
    }

    #[test]
    fn damaged_queries_are_refused_or_are_other_queries(
        query in arbitrary::query_with_parameters(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = query.encode().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(other) = Query::decode(&bytes) {
            prop_assert_eq!(other.encode().unwrap(), bytes);
            // Whatever it is, it can be shown.
            let _ = other.to_string();
        }
    }
}
