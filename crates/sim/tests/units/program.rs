//! Versions of the classes of a run, and the programs that know them.

use model::{FieldType, Value};
use sim::program::{Elements, TextField, appended, default, fits, maps};

/// The text that is a number.
const COUNT: usize = 4;

#[test]
fn a_program_fits_a_class_that_has_its_fields() {
    assert!((1..=2).all(|page| (0..=4).all(|class| (0..=class).all(|program| fits(page, program, class)))));
    assert!(!fits(1, 4, 5) && !maps(1, 4, 5), "one was renamed");
    assert!(fits(1, 0, 5), "which the program does not know");
    assert!(!fits(2, 4, 5) && !maps(2, 4, 5), "one was widened");
    assert!(!fits(1, 7, 8) && !maps(1, 7, 8), "one was removed");
    assert!(!fits(1, 7, 9) && maps(1, 7, 9), "another one has its name");
    assert!(!fits(1, 1, 0), "it lacks one");
}

#[test]
fn a_number_says_who_has_written_it_last_whatever_its_type_is() {
    for (page, wide) in [(1, FieldType::Decimal), (2, FieldType::Float64)] {
        let last = |value| Elements::of(page, COUNT, &value).unwrap();
        assert_eq!(last(default(page, COUNT)), Elements::Last(None));
        for ty in [FieldType::Int64, wide] {
            let field = TextField { text: COUNT, name: "count", ty };
            assert_eq!(last(appended(page, &field, &Value::Null, 7)), Elements::Last(Some(7)), "{field:?}");
        }
    }
    let rounded = Value::Float64(((1_i64 << 60) + 7) as f64);
    assert_eq!(Elements::of(1, COUNT, &rounded).unwrap(), Elements::Last(None));
}

#[test]
fn a_text_that_begins_with_the_default_of_another_field_is_wrong() {
    assert_eq!(Elements::of(1, 5, &"d5:3,4,".into()).unwrap(), Elements::All(vec![3, 4]));
    assert!(Elements::of(1, 6, &"d5:3,4,".into()).is_err());
    assert!(Elements::of(1, 6, &Value::Null).is_err());
}
