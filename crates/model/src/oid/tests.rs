use proptest::prelude::*;

use super::*;
use crate::arbitrary;

fn oid(text: &str) -> Oid {
    text.parse().unwrap()
}

#[test]
fn parts_have_the_positions_of_the_layout() {
    let page = PageId { space: SpaceId(0x7fff), node: NodeId(0x12_3456), number: 0x6543_2109_8765 };
    let oid = Oid::new(ClassId(0xab_cdef), page, 0xbeef);
    assert_eq!(oid.to_u128(), 0x7fff_abcd_ef12_3456_6543_2109_8765_beef);
    assert_eq!(oid.to_bytes()[..2], [0x7f, 0xff]);
    let temporary = Oid::temporary(SpaceId(1), ClassId(2), 3);
    assert_eq!(temporary.to_u128(), 0x8001_0000_0200_0000_0000_0000_0000_0003);
}

#[test]
fn displays_as_five_hexadecimal_parts() {
    let page = PageId { space: SpaceId(1), node: NodeId(0), number: 0x2a };
    assert_eq!(Oid::new(ClassId::NONE, page, 3).to_string(), "1.0.0.2a.3");
    assert_eq!(Oid::temporary(SpaceId(1), ClassId(0xff), 0x1_0002).to_string(), "~1.ff.0.1.2");
    assert_eq!(Oid::MAX.to_string(), "~7fff.ffffff.ffffff.ffffffffffff.ffff");
    assert_eq!(format!("{:?}", Oid::MIN), "Oid(0.0.0.0.0)");
}

#[test]
fn reads_capitals_and_leading_zeros() {
    assert_eq!(oid("0001.0.00.2A.3"), oid("1.0.0.2a.3"));
    assert_eq!(oid("0000000000000000000000001.0.0.0.0"), oid("1.0.0.0.0"));
}

#[test]
fn invalid_identifiers_are_refused_by_the_wrong_part() {
    let error = |text: &str| text.parse::<Oid>().unwrap_err();
    assert_eq!(error("1.2.3.4"), ParseOidError::Parts { found: 4, text: "1.2.3.4".into() });
    assert_eq!(error(""), ParseOidError::Parts { found: 1, text: String::new() });
    assert_eq!(error("1.2.3.4.5.6"), ParseOidError::Parts { found: 6, text: "1.2.3.4.5.6".into() });
    for digits in ["", "g", "+1", "-1", "0x1", " 1", "~1", "١"] {
        let text = format!("1.2.{digits}.4.5");
        assert_eq!(error(&text), ParseOidError::Digits { part: "node", text: digits.into() }, "{text}");
    }
    assert_eq!(error("8000.0.0.0.0"), ParseOidError::Range { part: "space", bits: 15, text: "8000".into() });
    assert_eq!(error("0.1000000.0.0.0"), ParseOidError::Range { part: "class", bits: 24, text: "1000000".into() });
    assert_eq!(error("0.0.0.0.10000"), ParseOidError::Range { part: "slot", bits: 16, text: "10000".into() });
    let long = "f".repeat(1000);
    assert!(matches!(error(&format!("0.0.0.{long}.0")), ParseOidError::Range { part: "page", bits: 48, .. }));
}

#[test]
fn errors_stay_short_whatever_the_text() {
    let message = ".".repeat(100_000).parse::<Oid>().unwrap_err().to_string();
    assert!(message.len() < 500, "{} bytes", message.len());
}

#[test]
#[should_panic(expected = "space 32768 is over 15 bits")]
fn a_part_that_does_not_fit_its_bits_panics() {
    let _ = Oid::new(ClassId::NONE, PageId { space: SpaceId(1 << 15), node: NodeId(0), number: 0 }, 0);
}

#[test]
fn the_last_identifier_has_no_successor() {
    assert_eq!(Oid::MAX.successor(), None);
    assert_eq!(oid("1.0.0.0.ffff").successor(), Some(oid("1.0.0.1.0")));
    assert_eq!(Oid::first_of(SpaceId(2)), oid("2.0.0.0.0"));
}

proptest! {
    #[test]
    fn every_bit_pattern_is_an_identifier_and_round_trips(oid in arbitrary::oid()) {
        prop_assert_eq!(Oid::from_bytes(oid.to_bytes()), oid);
        prop_assert_eq!(oid.to_string().parse(), Ok(oid));
    }

    #[test]
    fn the_parts_make_the_whole(oid in arbitrary::oid()) {
        let rebuilt = Oid::new(oid.class(), oid.page(), oid.slot()).to_u128();
        prop_assert_eq!(rebuilt | u128::from(oid.is_temporary()) << 127, oid.to_u128());
    }

    #[test]
    fn bytes_order_as_space_class_node_page_slot(a in arbitrary::oid(), b in arbitrary::oid()) {
        let key = |oid: Oid| {
            let page = oid.page();
            (oid.is_temporary(), page.space, oid.class(), page.node, page.number, oid.slot())
        };
        prop_assert_eq!(a.cmp(&b), key(a).cmp(&key(b)));
        prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
    }
}

#[test]
fn pages_order_by_space_then_node_then_number() {
    let page = |space, node, number| PageId { space: SpaceId(space), node: NodeId(node), number };
    let pages = [page(1, 0, 0), page(1, 0, u64::MAX), page(1, u32::MAX, 0), page(2, 0, 0), page(u16::MAX, 0, 1)];
    assert!(pages.is_sorted_by(|a, b| a < b));
}
