//! Compares plans with a naive evaluation of the tree over all decoded objects.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassId, Comparison, Decimal, FieldNumber};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::world::record;
use crate::{Aggregate, Arithmetic, Class, Expr, Function, Item, OrderKey, Schema, Type, number};

type Fields = BTreeMap<FieldNumber, Value>;

/// Decisions drawn from the bytes of proptest, so that failures shrink.
struct Choices {
    bytes: Vec<u8>,
    at: usize,
}

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % end
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

const A: ClassId = ClassId(1);
const B: ClassId = ClassId(2);
const C: ClassId = ClassId(3);

fn ty(choices: &mut Choices) -> Type {
    match choices.below(12) {
        0 | 1 => Type::Int64,
        2 => Type::Float64,
        3 => Type::Decimal,
        4 | 5 => Type::String,
        6 => Type::Bool,
        7 => Type::Date,
        8 => Type::Reference(Some(A)),
        9 => Type::Reference(Some(C)),
        10 => Type::set(Type::Reference(Some(A))),
        _ => Type::list(Type::Int64),
    }
}

/// One of few values, so that many are equal.
fn value(ty: &Type, choices: &mut Choices) -> Value {
    let long = |end: &str| Value::from("x".repeat(400) + end);
    match ty {
        Type::Bool => choices.one_in(2).into(),
        Type::Int64 => choices.of(&[0, 1, 2, -1, 3, i64::MAX]).into(),
        Type::Float64 => choices.of(&[0.0, 1.0, -0.0, 0.5, 2.0, 9_007_199_254_740_992.0, f64::NAN]).into(),
        Type::Decimal => Value::Decimal(choices.of(&["0", "1.0", "1.00", "0.5", "2", "-1"]).parse().unwrap()),
        Type::String => choices.of(&["".into(), "a".into(), "ab".into(), "b".into(), "B".into(), long("a"), long("b")]),
        Type::Bytes => vec![choices.below(3) as u8].into(),
        Type::Date => model::Date { days: choices.below(4) as i64 }.into(),
        Type::Timestamp => model::Timestamp::from_millis(choices.below(4) as i64).into(),
        // Some do not exist, some are of an unexpected class.
        Type::Reference(_) => oid(choices.of(&[1, 1, 2, 3]), choices.below(8) as u16).into(),
        Type::List(of) => (0..choices.below(4)).map(|_| value(of, choices)).collect::<Vec<_>>().into(),
        Type::Set(of) => (0..choices.below(4)).map(|_| value(of, choices)).collect::<BTreeSet<_>>().into(),
        Type::Map(..) => Value::Null,
    }
}

fn class(id: ClassId, name: &str, first: u32, fields: u32, choices: &mut Choices) -> Class {
    (first..first + fields).fold(Class::new(id, name), |class, number| {
        let ty = ty(choices);
        let scalar = !matches!(ty, Type::List(_) | Type::Set(_) | Type::Reference(_));
        let default = if scalar && choices.one_in(3) { value(&ty, choices) } else { Value::Null };
        let name = format!("f{number}");
        match choices.one_in(3) {
            true => class.required(number, name, ty, default),
            false => class.field_with_default(number, name, ty, default),
        }
    })
}

/// A value of a field as an older or current program may have written it.
fn stored_value(ty: &Type, choices: &mut Choices) -> Option<Value> {
    Some(match choices.below(16) {
        0 => return None,
        1 => Value::Null,
        2 => match ty {
            // Written before the field was widened.
            Type::Float64 => choices.of(&[1, 2, 9_007_199_254_740_993]).into(),
            Type::Decimal => choices.of(&[1.into(), 0.5.into(), Value::from(2)]),
            Type::List(of) => value(&Type::Set(of.clone()), choices),
            ty => value(ty, choices),
        },
        3 if choices.one_in(4) => model::Timestamp::from_millis(7).into(),
        _ => value(ty, choices),
    })
}

fn world(choices: &mut Choices) -> World {
    let schema = Schema::new([
        class(A, "A", 0, 6, choices),
        class(B, "B", 6, 2, choices).extends(A),
        class(C, "C", 0, 4, choices),
    ])
    .unwrap();
    let mut objects = BTreeMap::new();
    for slot in 0..choices.below(20) {
        let class = choices.of(&[A, A, B, C]);
        let fields = schema
            .fields(class)
            .iter()
            .filter_map(|field| Some((field.number, stored_value(&field.field_type, choices)?)));
        let fields: Fields = fields.collect();
        objects.insert(oid(class.0, slot as u16), record(&fields));
    }
    World { schema, objects }
}

/// Generates queries of a world.
struct Writer<'w> {
    schema: &'w Schema,
    /// The names that a path can begin with: variables and their types.
    variables: Vec<(String, Type)>,
}

impl Writer<'_> {
    /// All paths to values with a wanted type, through a few references.
    fn paths(&self, wanted: &dyn Fn(&Type) -> bool) -> Vec<(Expr, Type)> {
        let mut found = Vec::new();
        let mut front: Vec<(Vec<String>, Type)> = vec![(vec![], Type::Reference(Some(A)))];
        front.extend(self.variables.iter().map(|(name, ty)| (vec![name.clone()], ty.clone())));
        for _ in 0..3 {
            let mut next = Vec::new();
            for (path, ty) in front {
                if let Type::Reference(Some(class)) = &ty {
                    for field in self.schema.fields(*class) {
                        let mut longer = path.clone();
                        longer.push(field.name.clone());
                        next.push((longer, field.field_type.clone()));
                    }
                }
                if wanted(&ty) {
                    found.push((Expr::Path(path), ty));
                }
            }
            front = next;
        }
        found
    }

    fn path(&self, choices: &mut Choices, wanted: &dyn Fn(&Type) -> bool) -> Option<(Expr, Type)> {
        let mut paths = self.paths(wanted);
        // Short paths are more likely.
        paths.sort_by_key(|(path, _)| matches!(path, Expr::Path(names) if names.len() > 1));
        let short = paths.iter().filter(|(path, _)| matches!(path, Expr::Path(names) if names.len() <= 1)).count();
        match (paths.len(), short) {
            (0, _) => None,
            (_, 1..) if choices.one_in(2) => Some(paths[choices.below(short)].clone()),
            (all, _) => Some(paths[choices.below(all)].clone()),
        }
    }

    /// A value that can be compared with this type.
    fn term(&self, ty: &Type, choices: &mut Choices, levels: usize) -> Expr {
        match choices.below(8) {
            0..=2 => {}
            3 if ty.is_number() && levels > 0 => {
                let operation = choices.of(&Arithmetic::ALL);
                let (a, b) = (self.term(ty, choices, levels - 1), self.term(ty, choices, levels - 1));
                return Expr::Arithmetic(operation, Box::new(a), Box::new(b));
            }
            4 if *ty == Type::Int64 => {
                if let Some((path, _)) =
                    self.path(choices, &|ty| matches!(ty, Type::String | Type::List(_) | Type::Set(_)))
                {
                    return path.call(Function::Length, []);
                }
            }
            4 if ty.is_number() => return Expr::Negate(Box::new(self.term(ty, choices, 0))),
            5 if *ty == Type::String && levels > 0 => {
                return self.term(ty, choices, levels - 1).call(choices.of(&[Function::Lower, Function::Upper]), []);
            }
            _ => {
                if let Some((path, _)) =
                    self.path(choices, &|other| other.compares_with(ty) && other.is_number() == ty.is_number())
                {
                    return path;
                }
            }
        }
        Expr::Literal(value(ty, choices))
    }

    fn cond(&mut self, choices: &mut Choices, levels: usize) -> Expr {
        let kind = choices.below(if levels > 0 { 14 } else { 10 });
        let comparison = Comparison::ALL[choices.below(6)];
        match kind {
            0..=4 => {
                // The simplest kind, which bricks and indexes evaluate.
                let Some((path, ty)) = self.path(choices, &|ty| ty.element().is_none()) else {
                    return Expr::value(true);
                };
                let other =
                    if choices.one_in(4) { self.term(&ty, choices, 2) } else { Expr::Literal(value(&ty, choices)) };
                match choices.below(6) {
                    0 => {
                        path.compare(choices.of(&[Comparison::Equal, Comparison::NotEqual]), Expr::Literal(Value::Null))
                    }
                    1 => other.compare(comparison, path),
                    2 => {
                        let mut list: Vec<Expr> =
                            (0..choices.below(4)).map(|_| Expr::Literal(value(&ty, choices))).collect();
                        list.push(if choices.one_in(4) { other } else { Expr::Literal(Value::Null) });
                        Expr::List(list).call(Function::Contains, [path])
                    }
                    3 => path.compare(Comparison::Equal, other),
                    _ => path.compare(comparison, other),
                }
            }
            5 => {
                let Some((path, ty)) = self.path(choices, &|ty| ty.element().is_some()) else {
                    return Expr::value(false);
                };
                let element = self.term(ty.element().unwrap(), choices, 1);
                path.call(Function::Contains, [element])
            }
            6 | 7 => {
                let (a, b) = (self.term(&Type::String, choices, 1), self.term(&Type::String, choices, 1));
                a.call(choices.of(&[Function::StartsWith, Function::Contains, Function::EndsWith]), [b])
            }
            8 => {
                let ty = choices.of(&[Type::Int64, Type::Float64, Type::Decimal, Type::String, Type::Date]);
                self.term(&ty, choices, 2).compare(comparison, self.term(&ty, choices, 2))
            }
            9 => {
                let Some((collection, ty)) = self.path(choices, &|ty| matches!(ty, Type::Set(_))) else {
                    return Expr::value(true);
                };
                let variable = format!("v{}", self.variables.len());
                self.variables.push((variable.clone(), ty.element().unwrap().clone()));
                let condition = Box::new(self.cond(choices, levels.saturating_sub(1)));
                self.variables.pop();
                Expr::Any { collection: Box::new(collection), variable, condition }
            }
            10 => self.cond(choices, levels - 1).negate(),
            11 => Expr::Or((0..2 + choices.below(2)).map(|_| self.cond(choices, levels - 1)).collect()),
            _ => Expr::And((0..2 + choices.below(2)).map(|_| self.cond(choices, levels - 1)).collect()),
        }
    }

    fn query(&mut self, choices: &mut Choices) -> Query {
        let mut query = Query::of("A");
        query.only = choices.one_in(4);
        if !choices.one_in(8) {
            query.condition = Some(self.cond(choices, 3));
        }
        let scalar = |ty: &Type| ty.element().is_none();
        if choices.one_in(4) {
            // Groups whose aggregates do not depend on the order.
            let key = self.path(choices, &scalar);
            if let Some((key, _)) = key.filter(|_| choices.one_in(2)) {
                query.group.push(key.clone());
                query.select.push(Item { expr: key, name: None });
            }
            for _ in 0..1 + choices.below(2) {
                let aggregate = choices.of(&Aggregate::ALL);
                let number = |ty: &Type| matches!(ty, Type::Int64 | Type::Decimal);
                let of = match aggregate {
                    Aggregate::Count if choices.one_in(2) => None,
                    Aggregate::Sum | Aggregate::Average => self.path(choices, &number),
                    _ => self.path(choices, &scalar),
                };
                let of = of.map(|(of, _)| Box::new(of));
                let expr = Expr::Aggregate(if of.is_none() { Aggregate::Count } else { aggregate }, of);
                query.select.push(Item { expr, name: None });
            }
            if choices.one_in(2) {
                let expr = query.select[0].expr.clone();
                query.order.push(OrderKey { expr, descending: choices.one_in(2), nulls_first: None });
            }
        } else {
            for _ in 0..choices.below(3) {
                if let Some((expr, _)) = self.path(choices, &scalar) {
                    let nulls_first = choices.of(&[None, None, Some(true), Some(false)]);
                    query.order.push(OrderKey { expr, descending: choices.one_in(2), nulls_first });
                }
            }
            for _ in 0..choices.below(3) {
                if let Some((expr, _)) = self.path(choices, &|_| true) {
                    query.select.push(Item { expr, name: None });
                }
            }
        }
        query.skip = choices.of(&[0, 0, 1, 3]);
        query.limit = choices.of(&[None, Some(0), Some(1), Some(2), Some(4), Some(1000)]);
        query
    }
}

/// Answers queries of a world by examining everything.
struct Naive<'w> {
    world: &'w World,
    objects: BTreeMap<Oid, Fields>,
}

/// The evaluation fails.
struct EvaluationFails;

impl Naive<'_> {
    /// The value of a path and, for numbers, its current type.
    fn path(&self, this: Oid, variables: &[(&str, Value, Type)], names: &[String]) -> (Value, Type) {
        let variable = names.first().and_then(|name| variables.iter().rfind(|(known, ..)| known == name));
        let (mut at, mut ty, rest) = match variable {
            Some((_, value, ty)) => (value.clone(), ty.clone(), &names[1..]),
            None => (this.into(), Type::Reference(Some(A)), names),
        };
        for name in rest {
            let Type::Reference(Some(class)) = ty else { panic!() };
            let field = self.world.schema.field_named(class, name).unwrap();
            let fields = match at {
                Value::Reference(oid) if self.world.schema.family(class).contains(&oid.class()) => {
                    self.objects.get(&oid)
                }
                _ => None,
            };
            at = fields.map_or(Value::Null, |fields| match fields.get(&field.number) {
                None => field.missing.clone().unwrap_or(Value::Null),
                Some(Value::Null) if !field.optional => field.missing.clone().unwrap_or(Value::Null),
                Some(value) => value.clone(),
            });
            ty = field.field_type.clone();
        }
        (at, ty)
    }

    fn term(&self, this: Oid, variables: &[(&str, Value, Type)], expr: &Expr) -> Result<Value, EvaluationFails> {
        let term = |expr: &Expr| self.term(this, variables, expr);
        let number = |expr: &Expr| match expr {
            Expr::Path(names) => {
                let (value, ty) = self.path(this, variables, names);
                Ok(ty.convert(value))
            }
            other => term(other),
        };
        let text = |value: Value, map: fn(&str) -> String| match value {
            Value::String(text) => Value::String(map(&text)),
            _ => Value::Null,
        };
        Ok(match expr {
            Expr::Literal(value) => value.clone(),
            Expr::Path(names) => self.path(this, variables, names).0,
            Expr::Negate(of) => number::negate(&number(of)?).map_err(|_| EvaluationFails)?,
            Expr::Arithmetic(operation, a, b) => {
                number::apply(*operation, &number(a)?, &number(b)?).map_err(|_| EvaluationFails)?
            }
            Expr::Call(Function::Lower, of, _) => text(term(of)?, str::to_lowercase),
            Expr::Call(Function::Upper, of, _) => text(term(of)?, str::to_uppercase),
            Expr::Call(Function::Length, of, _) => match term(of)? {
                Value::String(text) => (text.chars().count() as i64).into(),
                Value::List(values) => (values.len() as i64).into(),
                Value::Set(values) => (values.len() as i64).into(),
                _ => Value::Null,
            },
            other => panic!("{other}"),
        })
    }

    fn cond(&self, this: Oid, variables: &[(&str, Value, Type)], expr: &Expr) -> Result<bool, EvaluationFails> {
        let cond = |expr: &Expr| self.cond(this, variables, expr);
        let term = |expr: &Expr| self.term(this, variables, expr);
        let compare = |a: &Value, b: &Value, comparison: Comparison| match (a, b) {
            (Value::Null, _) | (_, Value::Null) => false,
            (a, b) => match (a.as_scalar(), b.as_scalar()) {
                (Some(a), Some(b)) => a.compare_as_filters(b).is_some_and(|order| comparison.holds(order)),
                _ => false,
            },
        };
        Ok(match expr {
            Expr::Literal(value) => *value == Value::Bool(true),
            Expr::And(parts) => {
                for part in parts {
                    if !cond(part)? {
                        return Ok(false);
                    }
                }
                true
            }
            Expr::Or(parts) => {
                for part in parts {
                    if cond(part)? {
                        return Ok(true);
                    }
                }
                false
            }
            Expr::Not(part) => !cond(part)?,
            Expr::Compare(comparison, a, b) if **b == Expr::Literal(Value::Null) => {
                (term(a)? == Value::Null) == (*comparison == Comparison::Equal)
            }
            Expr::Compare(comparison, a, b) => compare(&term(a)?, &term(b)?, *comparison),
            Expr::Call(Function::Contains, of, arguments) if matches!(**of, Expr::List(_)) => {
                let Expr::List(parts) = &**of else { panic!() };
                let element = term(&arguments[0])?;
                for part in parts {
                    if compare(&element, &term(part)?, Comparison::Equal) {
                        return Ok(true);
                    }
                }
                false
            }
            Expr::Call(function, of, arguments) => match (term(of)?, term(&arguments[0])?) {
                (Value::String(of), Value::String(with)) => match function {
                    Function::StartsWith => of.starts_with(&with),
                    Function::EndsWith => of.ends_with(&with),
                    _ => of.contains(&with),
                },
                (Value::List(values), element) => {
                    values.iter().any(|value| compare(value, &element, Comparison::Equal))
                }
                (Value::Set(values), element) => values.iter().any(|value| compare(value, &element, Comparison::Equal)),
                _ => false,
            },
            Expr::Any { collection, variable, condition } => {
                let Expr::Path(names) = &**collection else { panic!() };
                let (Value::Set(elements), Type::Set(ty)) = self.path(this, variables, names) else { return Ok(false) };
                for element in elements {
                    let mut inner = variables.to_vec();
                    inner.push((variable, element, (*ty).clone()));
                    if self.cond(this, &inner, condition)? {
                        return Ok(true);
                    }
                }
                false
            }
            other => panic!("{other}"),
        })
    }

    fn matching(&self, query: &Query) -> Result<Vec<Oid>, EvaluationFails> {
        let mut matched = Vec::new();
        for oid in self.objects.keys() {
            let asked = oid.class() == A || (oid.class() == B && !query.only);
            if asked && query.condition.as_ref().map_or(Ok(true), |condition| self.cond(*oid, &[], condition))? {
                matched.push(*oid);
            }
        }
        Ok(matched)
    }

    /// The value of a column of an object, converted to the type of its field.
    fn column(&self, this: Oid, expr: &Expr) -> Value {
        let Expr::Path(names) = expr else { panic!() };
        let (value, ty) = self.path(this, &[], names);
        ty.convert(value)
    }

    fn sort(&self, query: &Query, mut matched: Vec<Oid>) -> Vec<Oid> {
        matched.sort_by(|a, b| {
            let mut order = std::cmp::Ordering::Equal;
            for key in &query.order {
                let Expr::Path(names) = &key.expr else { panic!() };
                let (x, y) = (self.path(*a, &[], names).0, self.path(*b, &[], names).0);
                let nulls = |value: &Value| (*value == Value::Null) != key.nulls_come_first();
                let coarse =
                    || x.as_scalar().unwrap().compare_as_filters(y.as_scalar().unwrap()).unwrap_or_else(|| x.cmp(&y));
                order = order.then_with(|| match (x == Value::Null, y == Value::Null) {
                    (false, false) if key.descending => coarse().reverse(),
                    (false, false) => coarse(),
                    _ => nulls(&x).cmp(&nulls(&y)),
                });
            }
            order.then(a.cmp(b))
        });
        matched
    }
}

fn check(world: &World, query: &Query, indexes: &[Index], parts: u32) -> Result<(), TestCaseError> {
    let decoded = |record: &Bytes| RecordRef::new(record).unwrap().to_fields().unwrap();
    let objects = world.objects.iter().map(|(oid, record)| (*oid, decoded(record))).collect();
    let naive = Naive { world, objects };
    // Queries round-trip as bytes and as text.
    prop_assert_eq!(&Query::decode(&query.encode().unwrap()).unwrap(), query);
    prop_assert_eq!(&Query::parse(&query.to_string()).unwrap(), query);
    let checked = match query.check(&world.schema) {
        Ok(checked) => checked,
        // Errors of the evaluation that the plan finds with known values.
        Err(error) if error.message().contains("divided") || error.message().contains("fit") => return Ok(()),
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    };
    let plan = Arc::new(checked.plan(&world.schema, indexes));
    let explained = plan.explain(&Counts::default()).to_string();
    let answer = run(world, &plan, parts);
    let Ok(matched) = naive.matching(query) else { return Ok(()) };
    let aggregates = query.select.iter().any(|item| matches!(item.expr, Expr::Aggregate(..)));
    let rows = match answer {
        Ok((rows, _)) => rows,
        // Sums that are not numbers, or too large.
        Err(_) if aggregates => return Ok(()),
        Err(error) => return Err(TestCaseError::fail(format!("{error}\n{explained}"))),
    };
    let page = |count: usize| {
        let left = count.saturating_sub(query.skip as usize);
        query.limit.map_or(left, |limit| left.min(limit as usize))
    };
    if aggregates {
        return groups(&naive, query, &matched, &rows, &explained, page);
    }
    let expected: Vec<Row> = naive
        .sort(query, matched)
        .into_iter()
        .map(|oid| match query.select.is_empty() {
            true => Row::Object(oid, world.objects[&oid].clone()),
            false => Row::Values(query.select.iter().map(|item| naive.column(oid, &item.expr)).collect()),
        })
        .collect();
    prop_assert_eq!(
        rows.len(),
        page(expected.len()),
        "{}
{}",
        query,
        explained
    );
    if query.order.is_empty() {
        let mut left = expected;
        for row in rows {
            let at = left.iter().position(|one| *one == row);
            prop_assert!(at.is_some(), "{:?}\n{}\n{}", row, query, explained);
            left.swap_remove(at.unwrap());
        }
    } else {
        let expected: Vec<Row> = expected.into_iter().skip(query.skip as usize).take(rows.len()).collect();
        prop_assert_eq!(rows, expected, "{}\n{}", query, explained);
    }
    Ok(())
}

fn groups(
    naive: &Naive<'_>,
    query: &Query,
    matched: &[Oid],
    rows: &[Row],
    explained: &str,
    page: impl Fn(usize) -> usize,
) -> Result<(), TestCaseError> {
    let mut groups: Vec<(Option<Value>, Vec<Oid>)> = Vec::new();
    if query.group.is_empty() {
        groups.push((None, matched.to_vec()));
    }
    for oid in matched.iter().filter(|_| !query.group.is_empty()) {
        let key = naive.column(*oid, &query.group[0]);
        let same = |other: &Value| {
            key == *other
                || key.as_scalar().unwrap().compare_as_filters(other.as_scalar().unwrap()).is_some_and(|o| o.is_eq())
        };
        match groups.iter_mut().find(|(known, _)| known.as_ref().is_some_and(same)) {
            Some((known, members)) => {
                *known = Some(known.take().unwrap().min(key));
                members.push(*oid);
            }
            None => groups.push((Some(key), vec![*oid])),
        }
    }
    let mut expected = Vec::new();
    for (key, members) in &groups {
        let row: Option<Vec<Value>> = query
            .select
            .iter()
            .map(|item| match &item.expr {
                Expr::Aggregate(aggregate, of) => aggregate_members(naive, *aggregate, of.as_deref(), members),
                _ => key.clone(),
            })
            .collect();
        // A sum that does not fit is an error, which was checked above.
        let Some(row) = row else { return Ok(()) };
        expected.push(Row::Values(row));
    }
    prop_assert_eq!(rows.len(), page(expected.len()), "{}\n{}", query, explained);
    for row in rows {
        let at = expected.iter().position(|one| one == row);
        prop_assert!(at.is_some(), "{:?} of {:?}\n{}\n{}", row, expected, query, explained);
        expected.swap_remove(at.unwrap());
    }
    Ok(())
}

fn aggregate_members(naive: &Naive<'_>, aggregate: Aggregate, of: Option<&Expr>, members: &[Oid]) -> Option<Value> {
    let Some(of) = of else { return Some((members.len() as i64).into()) };
    let values: Vec<Value> =
        members.iter().map(|oid| naive.column(*oid, of)).filter(|value| *value != Value::Null).collect();
    let big = |value: &Value| number::to_big(value).ok();
    Some(match aggregate {
        Aggregate::Count => (values.len() as i64).into(),
        Aggregate::Min => values.into_iter().min().unwrap_or(Value::Null),
        Aggregate::Max => values.into_iter().max().unwrap_or(Value::Null),
        _ if values.is_empty() => Value::Null,
        Aggregate::Sum | Aggregate::Average => {
            let int = matches!(values[0], Value::Int64(_));
            let count = values.len() as i64;
            let sum = values.iter().map(big).collect::<Option<Vec<_>>>()?.into_iter().reduce(|a, b| a + b)?;
            match (aggregate, int) {
                (Aggregate::Sum, true) => sum.to_string().parse::<i64>().ok()?.into(),
                (Aggregate::Sum, false) => Value::Decimal(Decimal::try_from(&sum).unwrap()),
                (_, true) => (sum.to_string().parse::<i128>().unwrap() as f64 / count as f64).into(),
                (_, false) => Value::Decimal(Decimal::try_from(&number::quotient(&sum, &count.into())).unwrap()),
            }
        }
    })
}

fn index(schema: &Schema, id: u32, choices: &mut Choices) -> Index {
    let fields: Vec<FieldNumber> = schema.fields(A).iter().map(|field| field.number).collect();
    let mut chosen = Vec::new();
    for _ in 0..1 + choices.below(3) {
        let field = choices.of(&fields);
        if !chosen.contains(&field) {
            chosen.push(field);
        }
    }
    Index { id, name: format!("i{id}"), class: A, fields: chosen, unique: false, ready: true }
}

proptest! {
    #[test]
    fn plan_gives_the_result_of_the_naive_evaluation(bytes in vec(any::<u8>(), 0..600), parts in 1..4u32) {
        let mut choices = Choices { bytes, at: 0 };
        let mut query_choices = Choices { bytes: choices.bytes.iter().rev().copied().collect(), at: 0 };
        let world = world(&mut choices);
        let indexes: Vec<Index> = (0..4).map(|id| index(&world.schema, id, &mut query_choices)).collect();
        for _ in 0..4 {
            let query = Writer { schema: &world.schema, variables: vec![] }.query(&mut query_choices);
            check(&world, &query, &[], parts)?;
            check(&world, &query, &indexes, parts)?;
        }
    }
}
