package io.mortar.jdo.query;

import io.mortar.jdo.mapping.Containers;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.NullOrderingType;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.JoinExpression;
import org.datanucleus.store.query.expression.OrderExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.inmemory.InMemoryExpressionEvaluator;

/**
 * Evaluates a query of JPQL in memory that joins several classes, or collections whose elements each give a row. Mortar's
 * queries and the evaluator of DataNucleus have a row for each candidate.
 */
final class JoinedRows {
    private final Query<?> query;
    private final QueryCompilation compilation;
    private final Map<Object, Object> parameters;
    private final ExecutionContext context;
    private final Function<Class<?>, List<Object>> extents;

    /** @param extents all objects of a class */
    JoinedRows(
            Query<?> query,
            QueryCompilation compilation,
            Map<Object, Object> parameters,
            Function<Class<?>, List<Object>> extents) {
        this.query = query;
        this.compilation = compilation;
        this.parameters = parameters;
        this.context = query.getExecutionContext();
        this.extents = extents;
    }

    /** The rows of the result, in order and without the range. */
    List<Object> evaluate() {
        if (compilation.getExprHaving() != null) {
            throw new NucleusUserException("a query that joins collections cannot filter its groups");
        }
        List<Map<String, Object>> tuples = List.of(Map.of());
        for (Expression from : compilation.getExprFrom()) {
            tuples = joined(tuples, (ClassExpression) from);
        }
        if (compilation.getExprFilter() != null) {
            tuples = tuples.stream().filter(tuple -> Boolean.TRUE.equals(value(compilation.getExprFilter(), tuple))).toList();
        }
        List<List<Map<String, Object>>> groups = groups(tuples);
        if (compilation.getExprOrdering() != null) {
            groups.sort(order());
        }
        List<Object> rows = new ArrayList<>();
        groups.forEach(group -> rows.add(row(group)));
        return compilation.getResultDistinct() || query.getResultDistinct() ? new ArrayList<>(new LinkedHashSet<>(rows)) : rows;
    }

    private List<Map<String, Object>> joined(List<Map<String, Object>> tuples, ClassExpression from) {
        List<Map<String, Object>> rows = new ArrayList<>();
        List<Object> candidates = extents.apply(compilation.getSymbolTable().getSymbol(from.getAlias()).getValueType());
        for (Map<String, Object> tuple : tuples) {
            candidates.forEach(candidate -> rows.add(with(tuple, from.getAlias(), candidate)));
        }
        List<Map<String, Object>> all = rows;
        for (Expression each = from.getRight(); each instanceof JoinExpression join; each = each.getRight()) {
            all = joined(all, join);
        }
        return all;
    }

    private List<Map<String, Object>> joined(List<Map<String, Object>> tuples, JoinExpression join) {
        boolean isOuter = join.getType() == JoinExpression.JoinType.JOIN_LEFT_OUTER
                || join.getType() == JoinExpression.JoinType.JOIN_LEFT_OUTER_FETCH;
        List<Map<String, Object>> rows = new ArrayList<>();
        for (Map<String, Object> tuple : tuples) {
            int before = rows.size();
            Object joined = value(join.getJoinedExpression(), tuple);
            for (Object element : elements(joined)) {
                Map<String, Object> row = with(tuple, join.getAlias(), element);
                if (join.getOnExpression() == null || Boolean.TRUE.equals(value(join.getOnExpression(), row))) {
                    rows.add(row);
                }
            }
            if (isOuter && rows.size() == before) {
                rows.add(with(tuple, join.getAlias(), null));
            }
        }
        return rows;
    }

    private static List<Object> elements(Object joined) {
        if (joined == null) {
            return List.of();
        }
        return Containers.isContainer(joined) ? Containers.elements(joined) : List.of(joined);
    }

    private static Map<String, Object> with(Map<String, Object> tuple, String alias, Object value) {
        Map<String, Object> row = new HashMap<>(tuple);
        row.put(alias, value);
        return row;
    }

    private Object value(Expression expression, Map<String, Object> tuple) {
        if (expression instanceof PrimaryExpression primary && primary.getLeft() == null
                && tuple.containsKey(primary.getTuples().get(0)) && tuple.get(primary.getTuples().get(0)) == null) {
            return null;
        }
        InMemoryExpressionEvaluator evaluator = new InMemoryExpressionEvaluator(context, parameters, new HashMap<>(tuple),
                query.getParsedImports(), context.getClassLoaderResolver(), compilation.getCandidateAlias(), query.getLanguage());
        return expression.evaluate(evaluator);
    }

    // ------------------------------------------------------------------------------------------- groups and results

    private List<List<Map<String, Object>>> groups(List<Map<String, Object>> tuples) {
        Expression[] grouping = compilation.getExprGrouping();
        List<List<Map<String, Object>>> groups = new ArrayList<>();
        if (grouping == null) {
            if (hasAggregates()) {
                groups.add(tuples);
            } else {
                tuples.forEach(tuple -> groups.add(List.of(tuple)));
            }
            return groups;
        }
        Map<List<Object>, List<Map<String, Object>>> byKey = new LinkedHashMap<>();
        for (Map<String, Object> tuple : tuples) {
            List<Object> key = new ArrayList<>();
            for (Expression each : grouping) {
                key.add(value(each, tuple));
            }
            byKey.computeIfAbsent(key, unused -> new ArrayList<>()).add(tuple);
        }
        groups.addAll(byKey.values());
        return groups;
    }

    private boolean hasAggregates() {
        Expression[] result = compilation.getExprResult();
        return result != null && Arrays.stream(result).anyMatch(ResultColumns::isAggregate);
    }

    private Object row(List<Map<String, Object>> group) {
        Expression[] result = compilation.getExprResult();
        if (result == null) {
            return group.get(0).get(compilation.getCandidateAlias());
        }
        if (result.length == 1) {
            return result[0] instanceof CreatorExpression creator ? creator(creator, group) : result(result[0], group);
        }
        Object[] row = new Object[result.length];
        for (int i = 0; i < row.length; i++) {
            row[i] = result(result[i], group);
        }
        return row;
    }

    private Object creator(CreatorExpression creator, List<Map<String, Object>> group) {
        Object[] arguments = creator.getArguments().stream().map(each -> result(each, group)).toArray();
        return QueryExecution.create(query.resolveClassDeclaration(creator.getId()), arguments);
    }

    private Object result(Expression expression, List<Map<String, Object>> group) {
        if (!ResultColumns.isAggregate(expression)) {
            return group.isEmpty() ? null : value(expression, group.get(0));
        }
        InvokeExpression aggregate = (InvokeExpression) expression;
        Expression argument = aggregate.getArguments().get(0);
        boolean distinct = argument.getOperator() == Expression.OP_DISTINCT;
        Expression of = distinct ? argument.getLeft() : argument;
        Collection<Object> values = distinct ? new LinkedHashSet<>() : new ArrayList<>();
        group.stream().map(tuple -> value(of, tuple)).filter(Objects::nonNull).forEach(values::add);
        return aggregate(aggregate.getOperation().toLowerCase(Locale.ROOT), values);
    }

    private static Object aggregate(String name, Collection<Object> values) {
        if (name.equals("count")) {
            return (long) values.size();
        }
        if (values.isEmpty()) {
            return null;
        }
        return switch (name) {
            case "min" -> values.stream().min(JoinedRows::compare).orElseThrow();
            case "max" -> values.stream().max(JoinedRows::compare).orElseThrow();
            case "sum" -> sum(values);
            default -> values.stream().mapToDouble(each -> ((Number) each).doubleValue()).average().orElseThrow();
        };
    }

    private static Object sum(Collection<Object> values) {
        Object first = values.iterator().next();
        if (first instanceof Double || first instanceof Float) {
            return values.stream().mapToDouble(each -> ((Number) each).doubleValue()).sum();
        }
        BigDecimal sum = values.stream().map(each -> new BigDecimal(each.toString())).reduce(BigDecimal.ZERO, BigDecimal::add);
        return first instanceof BigDecimal ? (Object) sum
                : first instanceof BigInteger ? (Object) sum.toBigInteger() : (Object) sum.longValueExact();
    }

    private Comparator<List<Map<String, Object>>> order() {
        return (left, right) -> {
            for (Expression each : compilation.getExprOrdering()) {
                OrderExpression key = (OrderExpression) each;
                int order = compare(key, result(key.getLeft(), left), result(key.getLeft(), right));
                if (order != 0) {
                    return order;
                }
            }
            return 0;
        };
    }

    private static int compare(OrderExpression key, Object left, Object right) {
        if (key.getNullOrder() != null && (left == null) != (right == null)) {
            boolean isFirst = (left == null) == (key.getNullOrder() == NullOrderingType.NULLS_FIRST);
            return isFirst ? -1 : 1;
        }
        int order = compare(left, right);
        return "descending".equalsIgnoreCase(key.getSortOrder()) ? -order : order;
    }

    private static int compare(Object left, Object right) {
        if (left == null || right == null) {
            return left == right ? 0 : left == null ? -1 : 1;
        }
        return ((Comparable<Object>) left).compareTo(right);
    }
}
