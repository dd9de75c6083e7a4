package io.mortar.jdo.query;

import io.mortar.jdo.query.Evaluator.Row;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.datanucleus.store.query.NullOrderingType;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.JoinExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.OrderExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;

/**
 * Evaluates a query in memory: joins, the filter, groups, their filter, order and result. A joined collection, and in
 * JDOQL a variable that the result has, gives a row for each element.
 */
final class MemoryRows {
    private final CompiledQuery compiled;
    private final QueryCompilation compilation;
    private final Evaluator evaluator;
    private final Evaluator.Source source;
    private final boolean isJpql;

    MemoryRows(CompiledQuery compiled, Evaluator evaluator, Evaluator.Source source, boolean isJpql) {
        this.compiled = compiled;
        this.compilation = compiled.compilation();
        this.evaluator = evaluator;
        this.source = source;
        this.isJpql = isJpql;
    }

    /**
     * The rows of the result, in order and without the range.
     *
     * @param candidates the objects that may satisfy the query; null for all
     * @param outer the row of the query that this is a subquery of, or a row without names
     */
    List<Object> evaluate(List<Object> candidates, Row outer) {
        List<Row> rows = new ArrayList<>();
        for (Row row : filtered(candidates(candidates, outer))) {
            if (!isJpql || !hasNullPath(row)) {
                rows.add(row);
            }
        }
        List<Row> groups = new ArrayList<>(grouped(rows));
        if (compilation.getExprHaving() != null) {
            groups.removeIf(group -> !evaluator.isTrue(compilation.getExprHaving(), group));
        }
        if (compilation.getExprOrdering() != null) {
            sort(groups);
        }
        List<Object> results = new ArrayList<>();
        groups.forEach(group -> results.add(result(group)));
        return compiled.isDistinct() ? distinct(results) : results;
    }

    // ------------------------------------------------------------------------------------------- rows

    private List<Row> candidates(List<Object> candidates, Row outer) {
        Expression[] from = compilation.getExprFrom();
        if (from == null) {
            List<Object> all = candidates == null ? source.extent(compilation.getCandidateClass()) : candidates;
            return all.stream()
                    .map(each -> outer.with(compilation.getCandidateAlias(), each))
                    .toList();
        }
        List<Row> rows = List.of(outer);
        for (int i = 0; i < from.length; i++) {
            rows = joined(rows, (ClassExpression) from[i], i == 0, candidates);
        }
        return rows;
    }

    private List<Row> joined(List<Row> rows, ClassExpression from, boolean isFirst, List<Object> found) {
        List<Object> candidates = isFirst ? found : null;
        // The typed API gives the candidates of a subquery another alias in FROM.
        String name = isFirst ? compilation.getCandidateAlias() : from.getAlias();
        List<Row> joined = new ArrayList<>();
        Function<Row, Collection<Object>> partners = null;
        for (Row row : rows) {
            if (!isFirst && row.names().containsKey(name)) {
                // IN(a.tracks) is another clause with the candidate of the first one.
                joined.add(row);
            } else if (candidates == null && from.getCandidateExpression() != null) {
                Expression path = QueryPlan.path(from.getCandidateExpression());
                elements(name, path, row).forEach(each -> joined.add(row.with(each)));
            } else {
                partners = candidates != null
                        ? unused -> candidates
                        : partners == null ? partners(name, row, compilation.getExprFilter()) : partners;
                partners.apply(row).forEach(each -> joined.add(row.with(name, each)));
            }
        }
        List<Row> all = joined;
        int number = 0;
        for (Expression each = from.getRight(); each instanceof JoinExpression join; each = each.getRight()) {
            // A join that only fetches gives the same rows as another one.
            String alias = join.getAlias() != null ? join.getAlias() : "#fetch" + ++number;
            all = joined(all, join, alias);
        }
        return all;
    }

    private List<Row> joined(List<Row> rows, JoinExpression join, String alias) {
        boolean isOuter = QueryPlan.isOuter(join);
        List<Row> joined = new ArrayList<>();
        Function<Row, List<Map<String, Object>>> partners = rows.isEmpty() ? null : partners(join, alias, rows.get(0));
        for (Row row : rows) {
            int before = joined.size();
            for (Map<String, Object> partner : partners.apply(row)) {
                Row extended = row.with(partner);
                if (join.getOnExpression() == null || evaluator.isTrue(join.getOnExpression(), extended)) {
                    joined.add(extended);
                }
            }
            if (isOuter && joined.size() == before) {
                joined.add(row.with(named(alias, null, null, null, null)));
            }
        }
        return joined;
    }

    /** The names that a join gives an element: its alias, and those that stand for its key, its value and its index. */
    private static Map<String, Object> named(String alias, Object element, Object key, Object value, Object index) {
        Map<String, Object> names = new HashMap<>();
        names.put(alias, element);
        names.put(alias + Evaluator.KEY, key);
        names.put(alias + Evaluator.VALUE, value);
        names.put(alias + Evaluator.INDEX, index);
        return names;
    }

    /** What a join has for each row: the elements of a collection or a map, an object, or objects of a class. */
    private Function<Row, List<Map<String, Object>>> partners(JoinExpression join, String alias, Row first) {
        boolean isClass = join.getJoinedExpression() instanceof PrimaryExpression path
                && path.getLeft() == null
                && path.getTuples().size() == 1
                && !first.names().containsKey(path.getId());
        if (!isClass) {
            return row -> elements(alias, join.getJoinedExpression(), row);
        }
        Function<Row, Collection<Object>> objects = partners(alias, first, join.getOnExpression());
        return row ->
                objects.apply(row).stream().map(each -> Map.of(alias, each)).toList();
    }

    private List<Map<String, Object>> elements(String alias, Expression path, Row row) {
        List<Map<String, Object>> elements = new ArrayList<>();
        if (path.getOperator() == Expression.OP_CAST) {
            Class<?> type =
                    compiled.query().resolveClassDeclaration(String.valueOf(((Literal) path.getRight()).getLiteral()));
            elements.addAll(elements(alias, path.getLeft(), row));
            elements.removeIf(each -> !type.isInstance(each.get(alias)));
            return elements;
        }
        boolean isDeep = path instanceof PrimaryExpression deep
                && QueryPlan.path(deep.getId()).getTuples().size() > 2;
        Object joined = isDeep ? evaluator.joined((PrimaryExpression) path, row) : evaluator.value(path, row);
        if (joined instanceof Map<?, ?> map) {
            boolean isKey =
                    path instanceof PrimaryExpression primary && primary.getId().endsWith(Evaluator.KEY);
            map.forEach((key, value) -> elements.add(named(alias, isKey ? key : value, key, value, null)));
            return elements;
        }
        for (Object each : Evaluator.elements(joined)) {
            elements.add(named(alias, each, null, each, elements.size()));
        }
        return elements;
    }

    /**
     * The objects of a class that rows may be joined with: all, or, if the condition compares a path of these objects
     * with one of the rows, those with an equal value. The condition is evaluated for each pair later.
     *
     * @param alias the name of the objects
     * @param first one of the rows, which all have the same names
     */
    private Function<Row, Collection<Object>> partners(String alias, Row first, Expression condition) {
        List<Object> all = source.extent(typeOf(alias));
        List<Expression> parts = new ArrayList<>();
        Evaluator.flatten(condition, Expression.OP_AND, parts);
        for (Expression part : parts) {
            if (part instanceof DyadicExpression && part.getOperator() == Expression.OP_EQ) {
                Expression left = part.getLeft();
                Expression right = part.getRight();
                if (isPathOf(Set.of(alias), left) && isPathOf(first.names().keySet(), right)) {
                    return partners(all, alias, left, right);
                }
                if (isPathOf(Set.of(alias), right) && isPathOf(first.names().keySet(), left)) {
                    return partners(all, alias, right, left);
                }
            }
        }
        return row -> all;
    }

    private static boolean isPathOf(Set<String> names, Expression expression) {
        return expression instanceof PrimaryExpression path
                && path.getLeft() == null
                && names.contains(path.getTuples().get(0));
    }

    private Function<Row, Collection<Object>> partners(
            List<Object> all, String alias, Expression theirs, Expression ours) {
        ValueIndex index = new ValueIndex(all, each -> evaluator.value(theirs, new Row(Map.of(alias, each), null)));
        return row -> index.candidates(evaluator.value(ours, row));
    }

    private Class<?> typeOf(String alias) {
        return compilation.getSymbolTable().getSymbol(alias).getValueType();
    }

    private List<Row> filtered(List<Row> rows) {
        Expression filter = compilation.getExprFilter();
        Set<String> wanted = evaluator
                .variables()
                .wanted(
                        clause(compilation.getExprResult()),
                        clause(compilation.getExprGrouping()),
                        clause(compilation.getExprOrdering()));
        List<Row> extended = rows;
        if (!wanted.isEmpty()) {
            List<Expression> parts = new ArrayList<>();
            Evaluator.flatten(filter, Expression.OP_AND, parts);
            extended = new ArrayList<>();
            for (Row row : rows) {
                extend(row, parts, wanted, extended);
            }
        }
        return filter == null
                ? extended
                : extended.stream().filter(row -> evaluator.isTrue(filter, row)).toList();
    }

    /** Adds a row for each combination of values that the variables of the result may have. */
    private void extend(Row row, List<Expression> parts, Set<String> wanted, List<Row> to) {
        List<Row> extended = evaluator.variables().extended(row, parts, wanted);
        if (extended == null) {
            to.add(row);
        } else {
            extended.forEach(each -> extend(each, parts, wanted, to));
        }
    }

    private static Expression[] clause(Expression[] expressions) {
        return expressions == null ? new Expression[0] : expressions;
    }

    private boolean hasNullPath(Row row) {
        return QueryPlan.navigating(compilation).stream().anyMatch(each -> evaluator.hasNullPath(each, row));
    }

    // ------------------------------------------------------------------------------------------- groups and results

    private List<Row> grouped(List<Row> rows) {
        Expression[] grouping = compilation.getExprGrouping();
        if (grouping == null) {
            return isOneGroup() ? List.of(group(rows)) : rows;
        }
        Map<List<Object>, List<Row>> byKey = new LinkedHashMap<>();
        for (Row row : rows) {
            List<Object> key = new ArrayList<>();
            for (Expression each : grouping) {
                key.add(Values.groupKey(evaluator.value(each, row)));
            }
            byKey.computeIfAbsent(key, unused -> new ArrayList<>()).add(row);
        }
        return byKey.values().stream().map(MemoryRows::group).toList();
    }

    private static Row group(List<Row> rows) {
        return new Row(rows.isEmpty() ? new HashMap<>() : rows.get(0).names(), rows);
    }

    private boolean isOneGroup() {
        boolean[] found = {compilation.getExprHaving() != null};
        ExpressionTree.forEach(compilation.getExprResult(), each -> found[0] |= ResultColumns.isAggregate(each));
        return found[0];
    }

    private Object result(Row row) {
        Expression[] result = compilation.getExprResult();
        if (result == null) {
            return row.names().get(compilation.getCandidateAlias());
        }
        Object[] values =
                Arrays.stream(result).map(each -> evaluator.result(each, row)).toArray();
        return values.length == 1 ? values[0] : values;
    }

    /** The rows without those that are equal to an earlier one. */
    static List<Object> distinct(List<Object> results) {
        Map<Object, Object> byKey = new LinkedHashMap<>();
        results.forEach(each -> byKey.putIfAbsent(
                each instanceof Object[] row
                        ? Arrays.stream(row).map(Values::groupKey).toList()
                        : Values.groupKey(each),
                each));
        return new ArrayList<>(byKey.values());
    }

    // ------------------------------------------------------------------------------------------- order

    private void sort(List<Row> rows) {
        List<Comparator<Row>> keys = new ArrayList<>();
        for (Expression each : compilation.getExprOrdering()) {
            OrderExpression key = (OrderExpression) each;
            Expression by = QueryPlan.aliased(compilation, key.getLeft());
            Map<Row, Object> values = new IdentityHashMap<>();
            rows.forEach(row -> values.put(row, evaluator.value(by, row)));
            Comparator<Object> order = evaluator.order(by);
            keys.add((left, right) -> compare(key, order, values.get(left), values.get(right)));
        }
        keys.stream().reduce(Comparator::thenComparing).ifPresent(rows::sort);
    }

    private static int compare(OrderExpression key, Comparator<Object> values, Object left, Object right) {
        if (key.getNullOrder() != null && (left == null) != (right == null)) {
            boolean isFirst = (left == null) == (key.getNullOrder() == NullOrderingType.NULLS_FIRST);
            return isFirst ? -1 : 1;
        }
        int order = left == null || right == null
                ? Boolean.compare(left != null, right != null)
                : values.compare(left, right);
        return "descending".equalsIgnoreCase(key.getSortOrder()) ? -order : order;
    }
}
