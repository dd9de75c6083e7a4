package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.ValueCodec;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.ParameterExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/** Translates the operands of conditions: members, constants, arithmetic and functions. */
final class Operands {
    private static final Map<Expression.Operator, String> ARITHMETIC = Map.of(
            Expression.OP_ADD,
            "+",
            Expression.OP_SUB,
            "-",
            Expression.OP_MUL,
            "*",
            Expression.OP_DIV,
            "/",
            Expression.OP_MOD,
            "%");

    /** Lengths are of the type int. */
    private static final ValueCodec LENGTH = new ValueCodec(
            FieldType.INT64,
            true,
            number -> ((Number) number).longValue(),
            number -> ((Number) number).intValue(),
            null);

    /** Integers that are computed are of the type long, or of that of a larger operand. */
    private static final ValueCodec LONG =
            new ValueCodec(FieldType.INT64, true, number -> ((Number) number).longValue(), number -> number, null);

    /** An absolute value of the type int, which is a long if it is larger. */
    private static final ValueCodec INT = new ValueCodec(
            FieldType.INT64,
            true,
            number -> ((Number) number).longValue(),
            number -> Arithmetic.narrowed(((Number) number).longValue()),
            null);

    private static final ValueCodec FLOAT = new ValueCodec(
            FieldType.FLOAT64,
            true,
            number -> ((Number) number).doubleValue(),
            number -> ((Number) number).floatValue(),
            null);

    private static final ValueCodec BIG_INTEGER = new ValueCodec(
            FieldType.DECIMAL,
            true,
            number -> Values.decimal((Number) number),
            number -> Values.decimal((Number) number).toBigInteger(),
            null);

    private final Scope scope;
    private final Parameters parameters;
    /** The values of the query's own parameters. */
    private final Function<ParameterExpression, Object> values;
    /** What subqueries find that do not depend on the candidate. */
    private final Function<String, List<Object>> subqueries;

    Operands(
            Scope scope,
            Parameters parameters,
            Function<ParameterExpression, Object> values,
            Function<String, List<Object>> subqueries) {
        this.scope = scope;
        this.parameters = parameters;
        this.values = values;
        this.subqueries = subqueries;
    }

    Scope scope() {
        return scope;
    }

    Parameters parameters() {
        return parameters;
    }

    /** An expression. A subquery stands for its one value. */
    Term term(Expression expression) {
        if (expression instanceof PrimaryExpression primary) {
            return primary(primary);
        }
        if (expression instanceof Literal literal) {
            return new Term.Constant(WrittenNumber.read(DateLiteral.read(literal.getLiteral())));
        }
        if (expression instanceof ParameterExpression<?> parameter) {
            return new Term.Constant(values.apply(parameter));
        }
        if (expression instanceof VariableExpression variable) {
            return variable(variable);
        }
        if (expression instanceof InvokeExpression invoke) {
            return function(invoke);
        }
        if (expression instanceof DyadicExpression dyadic) {
            return arithmetic(dyadic);
        }
        throw new Untranslatable(expression.getClass().getSimpleName() + " has no counterpart");
    }

    /**
     * The tests without which an expression may have zero in place of null: those of embedded objects with members of
     * primitive types.
     */
    Set<String> presences(Expression expression) {
        Set<String> tests = new LinkedHashSet<>();
        ExpressionTree.forEach(expression, each -> {
            if (each instanceof PrimaryExpression path) {
                tests.addAll(primary(path).presences());
            }
        });
        return tests;
    }

    /** An expression that stands for several values: of a subquery, all that it finds. */
    Term values(Expression expression) {
        return expression instanceof VariableExpression variable && isSubquery(expression)
                ? new Term.Constant(subqueries.apply(variable.getId()))
                : term(expression);
    }

    boolean isSubquery(Expression expression) {
        return expression instanceof VariableExpression variable
                && scope.named(variable.getId()) == null
                && !scope.isCandidate(variable.getId());
    }

    /** The one value that a subquery has found; null if it has found nothing. */
    static Object single(List<Object> found, Expression subquery) {
        if (found.size() > 1) {
            throw new NucleusUserException(
                    "the subquery " + subquery + " has " + found.size() + " values where one is needed");
        }
        return found.isEmpty() ? null : found.get(0);
    }

    private Term variable(VariableExpression variable) {
        Term defined = scope.named(variable.getId());
        if (defined != null) {
            return defined;
        }
        return scope.isCandidate(variable.getId())
                ? scope.self()
                : new Term.Constant(single(subqueries.apply(variable.getId()), variable));
    }

    private Term primary(PrimaryExpression primary) {
        if (primary.getLeft() == null) {
            return scope.resolve(primary.getTuples());
        }
        Term left = term(primary.getLeft());
        if (left.isConstant()) {
            throw new Untranslatable("a member of a parameter");
        }
        return scope.walk(left, primary.getTuples());
    }

    /** The text of an operand of arithmetic or of a function. */
    private String number(Term term) {
        if (term.constant() instanceof Number number) {
            return parameters.text(number, term);
        }
        if (!term.isNumber()) {
            throw new Untranslatable("an operand is not a number");
        }
        return term.text();
    }

    private static boolean isBigInteger(Term term) {
        return term.isConstant()
                ? term.constant() instanceof BigInteger
                : term.codec() != null
                        && term.codec().type().equals(FieldType.DECIMAL)
                        && term.codec().decode(BigDecimal.ONE) instanceof BigInteger;
    }

    private Term arithmetic(DyadicExpression expression) {
        Expression.Operator operator = expression.getOperator();
        if (operator == Expression.OP_NEG) {
            Term operand = term(expression.getLeft());
            if (operand.constant() instanceof Number number) {
                return new Term.Constant(Arithmetic.negative(number, expression));
            }
            return Term.Value.computed("-(" + number(operand) + ')', codecOf(operand), operand);
        }
        if (operator == Expression.OP_CAST) {
            return cast(expression);
        }
        String sign = ARITHMETIC.get(operator);
        if (sign == null) {
            throw new Untranslatable("the operator " + operator + " has no counterpart");
        }
        Term left = term(expression.getLeft());
        Term right = term(expression.getRight());
        if (operator == Expression.OP_DIV && (isBigInteger(left) || isBigInteger(right))) {
            throw new Untranslatable("the store divides a BigInteger as a decimal");
        }
        String text = '(' + number(left) + ' ' + sign + ' ' + number(right) + ')';
        return Term.Value.computed(text, codecOf(left, right), left, right);
    }

    /** The codec of what is computed from numbers. */
    private static ValueCodec codecOf(Term... operands) {
        ValueCodec codec = LONG;
        for (Term operand : operands) {
            if (isBigInteger(operand)) {
                codec = BIG_INTEGER;
            } else if (!isInteger(operand)) {
                return null;
            }
        }
        return codec;
    }

    /** The codec of an absolute value, whose type is that of {@link Arithmetic#absolute}. */
    private static ValueCodec absoluteCodecOf(Term operand) {
        Object example = operand.codec() == null ? null : operand.codec().decode(0L);
        if (example instanceof Float) {
            return FLOAT;
        }
        return Values.isInteger(example) && !(example instanceof Long) ? INT : codecOf(operand);
    }

    private static boolean isInteger(Term term) {
        return term.isConstant()
                ? Values.isInteger(term.constant())
                : term.codec() != null && term.codec().type().equals(FieldType.INT64);
    }

    /** A cast to the class that an operand has anyway, or to one above it. */
    private Term cast(DyadicExpression expression) {
        String name = String.valueOf(((Literal) expression.getRight()).getLiteral());
        if (term(expression.getLeft()) instanceof Term.Reference operand) {
            for (ClassMapping type = operand.type(); type != null; type = type.parent()) {
                if (type.name().equals(name) || type.metadata().getName().equals(name)) {
                    return operand;
                }
            }
        }
        throw new Untranslatable("a cast to " + name);
    }

    private Term function(InvokeExpression invoke) {
        String name = invoke.getOperation();
        List<Expression> arguments = invoke.getArguments();
        if (invoke.getLeft() == null) {
            boolean isAbs = name.equalsIgnoreCase("abs") || name.equals("Math.abs");
            if (isAbs && arguments.size() == 1) {
                Term operand = term(arguments.get(0));
                if (operand.constant() instanceof Number number) {
                    return new Term.Constant(Arithmetic.absolute(number, invoke));
                }
                return Term.Value.computed("abs(" + number(operand) + ')', absoluteCodecOf(operand), operand);
            }
            throw new Untranslatable("the function " + name + " has no counterpart");
        }
        Term operand = values(invoke.getLeft());
        if (operand instanceof Term.Reference && name.equals("get") || name.equals("getClass")) {
            throw new Untranslatable("the function " + name + " has no counterpart");
        }
        if (operand instanceof Term.Value && name.equals("get") && arguments.isEmpty()) {
            // The value of an Optional.
            return operand;
        }
        if (!operand.isText() || arguments != null && !arguments.isEmpty()) {
            throw new Untranslatable("the function " + name + " has no counterpart");
        }
        return switch (name) {
            case "toLowerCase" -> Term.Value.computed(operand.text() + ".lower()", ValueCodec.TEXT, operand);
            case "toUpperCase" -> Term.Value.computed(operand.text() + ".upper()", ValueCodec.TEXT, operand);
            case "length" -> Term.Value.computed(operand.text() + ".length()", LENGTH, operand);
            default -> throw new Untranslatable("the function " + name + " has no counterpart");
        };
    }
}
