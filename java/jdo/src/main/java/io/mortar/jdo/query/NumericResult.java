package io.mortar.jdo.query;

import java.util.Set;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;

/**
 * The Java type of arithmetic in the result of JPQL: Jakarta Persistence 3.1, section 4.8.6. Numbers are computed as
 * {@code long} and {@code double}; arithmetic of smaller integers is an {@code Integer}, and of {@code float} with
 * integers a {@code Float}.
 */
final class NumericResult {
    private static final Set<Expression.Operator> OPERATORS =
            Set.of(Expression.OP_ADD, Expression.OP_SUB, Expression.OP_MUL, Expression.OP_DIV, Expression.OP_NEG);
    private static final Set<Class<?>> INTEGERS = Set.of(Byte.class, Short.class, Integer.class);

    /** The types of which arithmetic has another type than it is computed with. */
    private enum Type {
        INTEGER,
        FLOAT,
        OTHER
    }

    private NumericResult() {}

    /**
     * The conversion of the values of an expression to the type that the specification says. A number that does not fit
     * keeps its type.
     *
     * @param operandType gives the type of an operand, or null
     */
    static UnaryOperator<Object> conversion(Expression expression, Function<Expression, Class<?>> operandType) {
        return switch (isArithmetic(expression) ? type(expression, operandType) : Type.OTHER) {
            case INTEGER -> NumericResult::integer;
            case FLOAT -> value -> value instanceof Double number ? (Object) number.floatValue() : value;
            case OTHER -> value -> value;
        };
    }

    private static Object integer(Object value) {
        return value instanceof Long number && number == number.intValue() ? (Object) number.intValue() : value;
    }

    private static boolean isArithmetic(Expression expression) {
        return expression instanceof DyadicExpression && OPERATORS.contains(expression.getOperator());
    }

    private static Type type(Expression expression, Function<Expression, Class<?>> operandType) {
        if (!isArithmetic(expression)) {
            Class<?> type = operandType.apply(expression);
            return type == Float.class
                    ? Type.FLOAT
                    : type != null && INTEGERS.contains(type) ? Type.INTEGER : Type.OTHER;
        }
        Type left = type(expression.getLeft(), operandType);
        Type right = expression.getRight() == null ? left : type(expression.getRight(), operandType);
        if (left == Type.OTHER || right == Type.OTHER) {
            return Type.OTHER;
        }
        return left == Type.FLOAT || right == Type.FLOAT ? Type.FLOAT : Type.INTEGER;
    }
}
