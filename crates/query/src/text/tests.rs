use model::{Comparison, Value};
use proptest::prelude::*;

use super::*;
use crate::{Aggregate, Arithmetic, Function, arbitrary};

fn parse(text: &str) -> Expr {
    Expr::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn path(path: &str) -> Expr {
    Expr::path(path)
}

#[test]
fn operators_bind_as_in_java() {
    let sum = Expr::Arithmetic(
        Arithmetic::Add,
        Box::new(path("a")),
        Box::new(Expr::Arithmetic(Arithmetic::Multiply, Box::new(path("b")), Box::new(Expr::value(2)))),
    );
    let compared = sum.compare(Comparison::Greater, Expr::value(3));
    let either = Expr::Or(vec![path("x"), Expr::And(vec![path("y").negate(), compared])]);
    assert_eq!(parse("x || !y && a + b * 2 > 3"), either);
    assert_eq!(parse("a - b - c"), parse("(a - b) - c"));
    assert_ne!(parse("a - b - c"), parse("a - (b - c)"));
    assert_eq!(parse("not a == 1"), parse("!(a == 1)"));
    assert_eq!(parse("a and b AND c"), Expr::And(vec![path("a"), path("b"), path("c")]));
    assert_eq!(parse("(a && b) && c"), Expr::And(vec![Expr::And(vec![path("a"), path("b")]), path("c")]));
}

#[test]
fn literals_of_numbers_determine_their_type() {
    let decimal = |text: &str| Expr::Literal(Value::Decimal(text.parse().unwrap()));
    let cases = [
        ("12", Expr::value(12)),
        ("-9223372036854775808", Expr::value(i64::MIN)),
        ("9223372036854775808", decimal("9223372036854775808")),
        ("12.50", decimal("12.50")),
        ("1e3", decimal("1e3")),
        ("1.5f", Expr::value(1.5)),
        ("-3f", Expr::value(-3.0)),
        ("-Infinity", Expr::value(f64::NEG_INFINITY)),
        ("-(5)", Expr::Negate(Box::new(Expr::value(5)))),
        ("-5.abs()", Expr::Negate(Box::new(Expr::value(5).call(Function::Abs, [])))),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn literals_of_every_type_are_written_in_quotes_with_a_letter() {
    assert_eq!(parse("d'1970-01-02'"), Expr::value(model::Date { days: 1 }));
    assert_eq!(parse("t\"1970-01-01T00:00:01Z\""), Expr::value(model::Timestamp::from_millis(1000)));
    assert_eq!(parse("x'0aff'"), Expr::value(vec![0x0a, 0xff]));
    assert_eq!(parse("@1.0.0.2a.3"), Expr::Literal(Value::Reference("1.0.0.2a.3".parse().unwrap())));
    assert_eq!(parse(r#"'it\'s \u{e9}'"#), Expr::value("it's é"));
    assert_eq!(parse(r"'\n\t\r\\'"), Expr::value("\n\t\r\\"));
}

#[test]
fn negative_numbers_are_written_in_brackets_before_a_function() {
    for number in [Value::Int64(-5), Value::Float64(-5.0), Value::Decimal("-5.0".parse().unwrap())] {
        let call = Expr::Literal(number).call(Function::Abs, []);
        assert_eq!(parse(&call.to_string()), call, "{call}");
    }
    assert_eq!(Expr::value(-5).call(Function::Abs, []).to_string(), "(-5).abs()");
    assert_eq!(Expr::value(0).call(Function::Abs, []).to_string(), "0.abs()");
}

#[test]
fn functions_are_written_before_or_after_their_argument() {
    assert_eq!(parse("lower(name)"), parse("name.lower()"));
    assert_eq!(parse("contains(tags, 3)"), parse("tags.contains(3)"));
    assert_eq!(parse("3 in tags"), parse("tags.contains(3)"));
    assert_eq!(parse("count(*)"), Expr::Aggregate(Aggregate::Count, None));
    let any = Expr::Any {
        collection: Box::new(path("a.friends")),
        variable: "f".into(),
        condition: Box::new(path("f.age").compare(Comparison::Greater, Expr::parameter("age"))),
    };
    assert_eq!(parse("a.friends.any(f => f.age > :age)"), any);
}

#[test]
fn words_can_be_names_in_backticks_and_after_dots() {
    assert_eq!(parse("`order`.limit.any"), path("order.limit.any"));
    let query = Query::parse("from com.example.order where `limit` > 3").unwrap();
    assert_eq!(query.class, "com.example.order");
    assert_eq!(Query::parse(&query.to_string()).unwrap(), query);
}

#[test]
fn the_class_may_be_known() {
    let whole = Query::parse("select max(age) as oldest from Person where name == 'x' limit 3").unwrap();
    assert_eq!(Query::parse_of("Person", "select max(age) as oldest where name == 'x' limit 3").unwrap(), whole);
    assert_eq!(Query::parse_of("Person", "").unwrap(), Query::of("Person"));
    assert_eq!(Query::parse_of("Person", "order by age desc").unwrap().order.len(), 1);
    assert_eq!(Query::parse_of("Person", "age > 3 skip 2").unwrap().skip, 2);
}

#[test]
fn errors_show_the_place() {
    let cases = [
        ("age > ", "the text ends where a field, a value, a parameter or ( ) should be", "      ^"),
        ("age > 3 3", "`3` is found where an operator", "        ^"),
        ("a < b < c", "comparisons do not chain", "  ^^^^^"),
        ("name.foo()", "there is no function foo", "     ^^^"),
        ("(a > 3", "the text ends where `)`", "      ^"),
        ("a == \"x", "these quotes are not closed", "     ^^"),
        ("a # 3", "'#' has no meaning", "  ^"),
        ("limit > 3", "`limit` is a word of the language", "^^^^^"),
        ("d'yesterday' == a", "not a date", "^^^^^^^^^^^^"),
        ("é == @1.2", "five parts", "     ^^^^"),
        ("max() > 3", "max needs an argument", "^^^"),
        ("3.name", "only paths have fields", "  ^^^^"),
    ];
    for (text, message, carets) in cases {
        let error = Expr::parse(text).unwrap_err().to_string();
        let mut lines = error.lines();
        let (first, second, third) = (lines.next().unwrap(), lines.next().unwrap(), lines.next().unwrap());
        assert!(first.contains(message), "{error}");
        assert_eq!(second, format!("  {text}"), "{error}");
        assert_eq!(third, format!("  {carets}"), "{error}");
    }
    let error = Query::parse("from Person\nwhere age >\norder by name").unwrap_err().to_string();
    assert!(error.ends_with("  order by name\n  ^^^^^"), "{error}");
}

#[test]
fn class_is_given_once() {
    for (text, carets) in [("from Person where age > 3", "  ^^^^"), ("select name from Person", "              ^^^^")] {
        let error = Query::parse_of("Person", text).unwrap_err().to_string();
        assert!(error.contains("leave `from` and the class out"), "{error}");
        assert_eq!(error.lines().last(), Some(carets), "{error}");
    }
    assert!(Query::parse_of("Person", "`from` == 3 limit 1").is_ok());
}

#[test]
fn error_in_a_long_text_shows_its_surroundings() {
    let long = format!("{}# {}", "a == 1 && ".repeat(100), "b".repeat(100));
    let error = Expr::parse(&long).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[1].chars().count() < 130 && lines[1].starts_with("  …") && lines[1].ends_with('…'), "{error}");
    assert_eq!(lines[1].chars().nth(lines[2].chars().count() - 1), Some('#'));
}

#[test]
fn depth_is_bounded_by_brackets_and_without_them() {
    let (sum, calls) = (|terms| vec!["1"; terms].join("+"), |count| format!("a{}", ".lower()".repeat(count)));
    for text in
        ["(".repeat(10_000), "!".repeat(10_000), "[".repeat(10_000), sum(100), sum(300_000), calls(100), calls(100_000)]
    {
        assert_eq!(Expr::parse(&text).unwrap_err().kind(), ErrorKind::TooLarge, "{text:.20}");
    }
    assert!(Expr::parse(&sum(limits::NESTING)).is_ok() && Expr::parse(&calls(limits::NESTING - 1)).is_ok());
    assert!(Expr::parse(&vec!["a"; 4000].join("&&")).is_ok());
    assert!(Expr::parse(&vec!["a"; 5000].join("&&")).is_err());
}

proptest! {
    #[test]
    fn printed_queries_parse_to_the_same_query(query in arbitrary::query()) {
        let text = query.to_string();
        let back = Query::parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(back, query, "{}", text);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,60}") {
        let _ = Query::parse_of("A", &text);
    }

    #[test]
    fn tokens_in_any_order_are_parsed_or_refused(
        tokens in proptest::collection::vec(prop::sample::select(vec![
            "a", "b.c", "(", ")", "[", "]", ",", "==", "<", "&&", "||", "!", "-", "+", "in", "not", "null", "1", "2.5f",
            "'x'", ":p", ".lower()", ".any(x =>", "select", "from", "where", "order by", "group by", "limit", "count(", "*",
            "@1", "d'", "`", "as", "desc", "nulls", "é",
        ]), 0..20),
    ) {
        let text = tokens.join(" ");
        if let Ok(query) = Query::parse_of("A", &text) {
            prop_assert_eq!(Query::parse(&query.to_string()).unwrap(), query, "{}", text);
        }
    }
}
