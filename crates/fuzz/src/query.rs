//! The fuzz target of queries: their encoding and their text.

use query::{Class, Query, Schema, Type};

pub(crate) fn run(data: &[u8]) {
    if let Ok(decoded) = Query::decode(data) {
        assert_eq!(decoded.encode().expect("a decoded query is within the limits"), data, "a query has one encoding");
        // An error message may contain any query.
        let _ = decoded.check(&schema()).map(|checked| checked.plan(&schema(), &[]).explain(&Default::default()));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    for parsed in [Query::parse(text), Query::parse_of("A", text)].into_iter().flatten() {
        let written = parsed.to_string();
        assert_eq!(Query::parse(&written).expect("the text of a query can be parsed"), parsed, "{written}");
        let _ = parsed.check(&schema());
    }
}

fn schema() -> Schema {
    let class = Class::new(model::ClassId(1), "A")
        .field(0, "a", Type::Int64)
        .field(1, "b", Type::Reference(Some(model::ClassId(1))))
        .field(2, "c", Type::String)
        .field(3, "d", Type::list(Type::Float64))
        .field_with_default(4, "e", Type::Decimal, model::Decimal::from(1));
    Schema::new([class]).expect("the classes are consistent")
}
