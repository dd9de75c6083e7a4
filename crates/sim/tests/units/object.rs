//! What the objects of a run contain.

use model::{ClassId, Object};
use sim::object::Content;

#[test]
fn what_is_encoded_is_decoded_as_it_was() {
    for content in [
        Content::Number(0),
        Content::Number(i64::MIN),
        Content::List(Vec::new()),
        Content::List(vec![7]),
        Content::List(vec![3, -17, i64::MAX]),
    ] {
        let object = content.encode();
        assert!(object.check().is_ok(), "{content:?} is not an object that a page may have");
        assert_eq!(Content::decode(&object), Some(content));
    }
    let member = Content::encode_member(17, ClassId(3));
    assert!(member.check().is_ok());
    assert_eq!(Content::decode(&member), Some(Content::Number(17)));
    assert_eq!(Content::unique_value(&member), None);
    let claim = Content::encode_claim(17, 4, ClassId(3));
    assert_eq!((Content::number(&claim), Content::unique_value(&claim)), (Some(17), Some(4)));
}

#[test]
fn list_is_patched_to_what_it_is_with_another_element() {
    for list in [vec![], vec![7], vec![3, -17]] {
        let bytes = Content::List(list.clone()).encode().data;
        let before = bytes.len() as u64;
        let expected = Content::List(list.into_iter().chain([42]).collect());
        for patch in [Content::append_patch(Some(&bytes), 42), Content::append_patch(None, 42)] {
            let mut bytes = bytes.to_vec();
            patch.ops().iter().for_each(|op| op.apply(&mut bytes));
            assert_eq!(Content::decode(&Object::blob(bytes.into())), Some(expected.clone()));
            let after = Content::list(&expected.encode()).unwrap_or_default();
            assert_eq!(Content::offset_in_list(&after, 42), patch.first_append(before).or(Some(before)));
        }
    }
}

#[test]
fn an_object_of_another_kind_is_not_decoded() {
    for text in ["", "x", "[1", "[,", "[1,]", "1.5"] {
        assert_eq!(Content::decode(&Object::blob(text.into())), None, "{text:?}");
    }
}
