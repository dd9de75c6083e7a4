package io.mortar.jdo.query;

import io.mortar.jdo.query.Evaluator.Row;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;

/** Computes aggregates in memory, with results of the types that translated ones have. */
final class Aggregates {
    private Aggregates() {}

    /** The value of an aggregate for the group of a row. */
    static Object compute(InvokeExpression aggregate, Row row, Evaluator evaluator) {
        if (row.group() == null) {
            throw new NucleusUserException("an aggregate is used where there is no group: " + aggregate);
        }
        Expression argument = aggregate.getArguments().get(0);
        boolean isDistinct = argument.getOperator() == Expression.OP_DISTINCT;
        Expression of = isDistinct ? argument.getLeft() : argument;
        List<Object> values = new ArrayList<>();
        for (Row each : row.group()) {
            Object value = evaluator.value(of, each);
            if (value != null) {
                values.add(value);
            }
        }
        return compute(aggregate, isDistinct ? distinct(values) : values, evaluator.order(of), evaluator.isJpql());
    }

    /** The value of an aggregate for values in some order. */
    static Object compute(
            InvokeExpression aggregate, Collection<Object> values, Comparator<Object> order, boolean isJpql) {
        return switch (aggregate.getOperation().toLowerCase(Locale.ROOT)) {
            case "count" -> (long) values.size();
            case "min" -> values.stream().min(order).orElse(null);
            case "max" -> values.stream().max(order).orElse(null);
            case "sum" -> values.isEmpty() ? null : sum(aggregate, values, isJpql);
            default -> values.isEmpty() ? null : average(aggregate, values);
        };
    }

    private static Collection<Object> distinct(List<Object> values) {
        Map<Object, Object> byKey = new LinkedHashMap<>();
        values.forEach(value -> byKey.putIfAbsent(Values.groupKey(value), value));
        return byKey.values();
    }

    private static Number number(InvokeExpression aggregate, Object value) {
        if (value instanceof Number number) {
            return number;
        }
        throw new NucleusUserException("an aggregate of something else than numbers: " + aggregate);
    }

    private static Object sum(InvokeExpression aggregate, Collection<Object> values, boolean isJpql) {
        Number first = number(aggregate, values.iterator().next());
        if (Values.isFloating(first)) {
            double sum = values.stream()
                    .mapToDouble(each -> number(aggregate, each).doubleValue())
                    .sum();
            return first instanceof Float && !isJpql ? (Object) (float) sum : (Object) sum;
        }
        BigDecimal sum = decimalSum(aggregate, values);
        if (first instanceof BigDecimal || first instanceof BigInteger) {
            return first instanceof BigDecimal ? sum : (Object) sum.toBigInteger();
        }
        try {
            return sum.longValueExact();
        } catch (ArithmeticException error) {
            throw new NucleusUserException("the sum " + sum + " does not fit a long: " + aggregate, error);
        }
    }

    private static BigDecimal decimalSum(InvokeExpression aggregate, Collection<Object> values) {
        return values.stream()
                .map(each -> Values.decimal(number(aggregate, each)))
                .reduce(BigDecimal.ZERO, BigDecimal::add);
    }

    private static double average(InvokeExpression aggregate, Collection<Object> values) {
        if (values.iterator().next() instanceof BigDecimal) {
            return decimalSum(aggregate, values)
                    .divide(BigDecimal.valueOf(values.size()), MathContext.DECIMAL128)
                    .doubleValue();
        }
        return values.stream()
                .mapToDouble(each -> number(aggregate, each).doubleValue())
                .average()
                .orElseThrow();
    }
}
