//! Checks the output of a query (objects, columns or groups) and its order.

use std::sync::Arc;

use super::{
    CheckResult, CheckedQuery, Checker, Column, Cond, GroupColumn, Groups, Order, OrderBy, Output, Term, as_type,
    check_error, misplaced_aggregate_message,
};
use crate::plant::{Bug, planted};
use crate::{Aggregate, Expr, Type};

impl<'q> Checker<'q, '_> {
    pub(super) fn query(&mut self) -> CheckResult<'q, CheckedQuery> {
        let query = self.query;
        let condition = query.condition.as_ref().map(|condition| self.cond(condition)).transpose()?;
        let grouped = !query.group.is_empty() || query.parts().any(|part| matches!(part, Expr::Aggregate(..)));
        let (output, order, columns) = if grouped { self.groups()? } else { self.rows()? };
        let family = self.schema.family(self.class);
        Ok(CheckedQuery {
            class: self.class,
            class_name: self.schema.class(self.class).map(|class| class.name.clone()).unwrap_or_default(),
            classes: if query.only || planted(Bug::SubclassesLeftOut) { Arc::new([self.class].into()) } else { family },
            condition: condition.filter(|condition| *condition != Cond::Constant(true)),
            output,
            order,
            skip: query.skip,
            limit: query.limit,
            columns,
        })
    }

    fn rows(&mut self) -> CheckResult<'q, (Output, Vec<Order>, Vec<Column>)> {
        let query = self.query;
        let (mut terms, mut columns) = (Vec::new(), Vec::new());
        for item in &query.select {
            let (term, ty) = self.convert_term(&item.expr)?;
            terms.push(term);
            columns.push(Column { name: name(item.name.as_ref(), &item.expr), ty });
        }
        let mut order = Vec::new();
        for key in &query.order {
            let term = self.comparable_term(&key.expr, "be ordered by")?.0;
            let by = OrderBy::Term(term);
            order.push(Order { by, descending: key.descending, nulls_first: key.nulls_come_first() });
        }
        let output = if terms.is_empty() { Output::Objects } else { Output::Columns(terms) };
        Ok((output, order, columns))
    }

    fn groups(&mut self) -> CheckResult<'q, (Output, Vec<Order>, Vec<Column>)> {
        let query = self.query;
        let mut keys = Vec::new();
        for key in &query.group {
            if let Expr::Aggregate(aggregate, _) = key {
                return check_error(key, misplaced_aggregate_message(aggregate.name()));
            }
            keys.push(self.comparable_term(key, "be grouped by")?);
        }
        let mut groups = Groups { keys: vec![], aggregates: vec![], columns: vec![] };
        let mut columns = Vec::new();
        if query.select.is_empty() {
            let at = query.parts().find(|part| matches!(part, Expr::Aggregate(..))).or(query.group.first());
            // There is one, as this is a grouping.
            if let Some(at) = at {
                return check_error(at, "select columns for the groups: `select … from …`");
            }
        }
        for item in &query.select {
            let (column, ty) = self.group_column(&item.expr, &keys, &mut groups)?;
            groups.columns.push(column);
            columns.push(Column { name: name(item.name.as_ref(), &item.expr), ty });
        }
        let mut order = Vec::new();
        for key in &query.order {
            let by = OrderBy::Group(self.group_column(&key.expr, &keys, &mut groups)?.0);
            order.push(Order { by, descending: key.descending, nulls_first: key.nulls_come_first() });
        }
        groups.keys = keys.into_iter().map(|(term, ty)| convert(term, ty.as_ref())).collect();
        Ok((Output::Groups(groups), order, columns))
    }

    fn group_column(
        &mut self,
        expr: &'q Expr,
        keys: &[(Term, Option<Type>)],
        groups: &mut Groups,
    ) -> CheckResult<'q, (GroupColumn, Option<Type>)> {
        let Expr::Aggregate(aggregate, of) = expr else {
            let same = self.query.group.iter().position(|key| key == expr);
            let Some(index) = same else {
                return check_error(expr, "this value can differ within a group: group by it, or aggregate it");
            };
            return Ok((GroupColumn::Key(index), keys[index].1.clone()));
        };
        let of = of.as_deref().map(|of| self.aggregate_operand(*aggregate, of)).transpose()?;
        let ty = match (aggregate, of.as_ref().and_then(|(_, ty)| ty.as_ref())) {
            (Aggregate::Count, _) => Some(Type::Int64),
            (Aggregate::Average, Some(Type::Decimal)) => Some(Type::Decimal),
            (Aggregate::Average, Some(_)) => Some(Type::Float64),
            (_, ty) => ty.cloned(),
        };
        let wanted = (*aggregate, of.map(|(term, _)| term));
        let known = groups.aggregates.iter().position(|known| *known == wanted);
        let index = known.unwrap_or_else(|| {
            groups.aggregates.push(wanted);
            groups.aggregates.len() - 1
        });
        Ok((GroupColumn::Aggregate(index), ty))
    }

    fn aggregate_operand(&mut self, aggregate: Aggregate, of: &'q Expr) -> CheckResult<'q, (Term, Option<Type>)> {
        match aggregate {
            Aggregate::Count => self.convert_term(of),
            Aggregate::Sum | Aggregate::Average => self.number(of),
            Aggregate::Min | Aggregate::Max => {
                let (term, ty) = self.comparable_term(of, &format!("have a {}", aggregate.name()))?;
                Ok((convert(term, ty.as_ref()), ty))
            }
        }
    }

    /// A value that is returned, converted to the type of its field.
    fn convert_term(&mut self, expr: &'q Expr) -> CheckResult<'q, (Term, Option<Type>)> {
        let (term, ty) = self.term(expr)?;
        Ok((convert(term, ty.as_ref()), ty))
    }

    /// A value that has an order.
    fn comparable_term(&mut self, expr: &'q Expr, verb: &str) -> CheckResult<'q, (Term, Option<Type>)> {
        match self.term(expr)? {
            (_, Some(ty @ (Type::List(_) | Type::Set(_) | Type::Map(..)))) => {
                check_error(expr, format!("{} cannot {verb}", self.describe_type(Some(&ty))))
            }
            typed => Ok(typed),
        }
    }
}

fn convert(term: Term, ty: Option<&Type>) -> Term {
    match ty {
        Some(ty) => as_type(term, ty),
        None => term,
    }
}

fn name(name: Option<&String>, expr: &Expr) -> String {
    name.cloned().unwrap_or_else(|| expr.to_string())
}
