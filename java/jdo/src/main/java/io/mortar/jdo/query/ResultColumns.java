package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.Oid;
import io.mortar.jdo.StoreQueries;
import io.mortar.jdo.mapping.ValueCodec;
import java.math.BigDecimal;
import java.util.Locale;
import java.util.Set;
import java.util.function.Function;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;

/** Translates the result of a query to columns. */
final class ResultColumns {
    private static final Set<String> AGGREGATES = Set.of("count", "sum", "min", "max", "avg");

    private final Operands operands;
    private final StoreQueries queries;
    private final boolean isJpql;

    ResultColumns(Operands operands, StoreQueries queries, boolean isJpql) {
        this.operands = operands;
        this.queries = queries;
        this.isJpql = isJpql;
    }

    static boolean isAggregate(Expression expression) {
        return expression instanceof InvokeExpression invoke
                && invoke.getLeft() == null
                && AGGREGATES.contains(invoke.getOperation().toLowerCase(Locale.ROOT));
    }

    ResultColumn column(Expression expression) {
        if (isAggregate(expression)) {
            return aggregate((InvokeExpression) expression);
        }
        Term term = operands.term(expression);
        if (term.isConstant()) {
            Object constant = WrittenNumber.toJava(term.constant());
            return new ResultColumn(null, stored -> constant);
        }
        if (term instanceof Term.Reference) {
            return new ResultColumn(term.text(), stored -> queries.object((Oid) stored));
        }
        if (term instanceof Term.Value) {
            Function<Object, Object> toJava = toJava(term);
            return new ResultColumn(
                    term.text(), isJpql ? toJava.andThen(NumericResult.conversion(expression, this::type)) : toJava);
        }
        throw new Untranslatable("a result is a collection or an embedded object");
    }

    /** The type of the values of an expression, or null if it is not known. */
    private Class<?> type(Expression expression) {
        Term term = operands.term(expression);
        Object example = term.isConstant() ? term.constant() : example(term.codec());
        return example == null ? null : example.getClass();
    }

    /** A number as a codec reads it; null if it reads no numbers, or the numbers of a converter. */
    private static Object example(ValueCodec codec) {
        if (codec == null || !codec.keepsOrder()) {
            return null;
        }
        return codec.type().equals(FieldType.INT64)
                ? codec.decode(0L)
                : codec.type().equals(FieldType.FLOAT64) ? codec.decode(0.0) : null;
    }

    private static Function<Object, Object> toJava(Term term) {
        ValueCodec codec = term.codec();
        if (codec == null) {
            return stored -> stored;
        }
        // A member of a primitive type that an older object lacks is zero. Behind a reference that is null there is no
        // value.
        Object missing = codec.zero() == null || !term.references().isEmpty() ? null : codec.decode(codec.zero());
        return stored -> stored == null ? missing : codec.decode(stored);
    }

    private ResultColumn aggregate(InvokeExpression invoke) {
        String name = invoke.getOperation().toLowerCase(Locale.ROOT);
        Expression argument = invoke.getArguments().get(0);
        if (argument.getOperator() == Expression.OP_DISTINCT) {
            throw new Untranslatable("an aggregate of distinct values has no counterpart");
        }
        Term term = operands.term(argument);
        if (name.equals("count")) {
            return new ResultColumn(term.isCandidate() ? "count(*)" : "count(" + text(term) + ')', stored -> stored);
        }
        if (!(term instanceof Term.Value)) {
            throw new Untranslatable("an aggregate of objects has no counterpart");
        }
        ValueCodec codec = term.codec();
        boolean ordered = codec == null || codec.keepsOrder();
        if (!ordered) {
            throw new Untranslatable("the stored values do not have the order of the Java values");
        }
        if (!term.isNumber() && (name.equals("sum") || name.equals("avg"))) {
            throw new Untranslatable("an operand is not a number");
        }
        String text = name + '(' + text(term) + ')';
        return switch (name) {
            case "sum" -> new ResultColumn(text, stored -> sum(stored, codec));
            case "avg" -> new ResultColumn(text, ResultColumns::average);
            default -> new ResultColumn(text, stored -> codec == null ? stored : codec.decode(stored));
        };
    }

    private static String text(Term term) {
        if (term.text() == null) {
            throw new Untranslatable("an aggregate of a constant has no counterpart");
        }
        return term.text();
    }

    /** Sums are long or double, or of the type of a member that is larger. */
    private Object sum(Object stored, ValueCodec codec) {
        if (stored == null || codec == null) {
            return stored;
        }
        if (codec.type().equals(FieldType.DECIMAL)) {
            return codec.decode(stored);
        }
        boolean isFloat = codec.type().equals(FieldType.FLOAT64) && codec.decode(0.0) instanceof Float;
        return isFloat && !isJpql ? (Object) ((Number) stored).floatValue() : stored;
    }

    /** Averages are doubles. */
    private static Object average(Object stored) {
        return stored instanceof BigDecimal decimal ? (Object) decimal.doubleValue() : stored;
    }
}
