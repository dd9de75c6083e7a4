package io.mortar.jdo.query;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.expression.Expression;

/**
 * Sums, differences, products and quotients of values in memory. Errors name the expression that they are computed for.
 */
final class Arithmetic {
    private static final MathContext QUOTIENT = MathContext.DECIMAL128;

    private Arithmetic() {}

    /** The value with the other sign. */
    static Object negative(Object value, Expression expression) {
        if (value instanceof WrittenNumber literal) {
            return literal.negative();
        }
        return value instanceof Number number && Values.isFloating(number)
                ? (Object) (-number.doubleValue())
                : calculate(0L, Expression.OP_SUB, value, expression);
    }

    /** The value without its sign, as {@link Math#abs}: an int for a smaller type, else of the type of the value. */
    static Object absolute(Object value, Expression expression) {
        if (value instanceof WrittenNumber literal) {
            return literal.signum() < 0 ? literal.negative() : literal;
        }
        if (value instanceof Float number) {
            return Math.abs(number);
        }
        boolean isNegative = Values.number(value) instanceof Number number && Values.order(number, 0L) < 0;
        Object absolute = calculate(0L, isNegative ? Expression.OP_SUB : Expression.OP_ADD, value, expression);
        return absolute instanceof Long integer && !(value instanceof Long) ? narrowed(integer) : absolute;
    }

    /** An integer as an int, or as a long if it is larger: -2^31 has no absolute value that is an int. */
    static Number narrowed(long integer) {
        return integer == (int) integer ? (Number) (int) integer : (Number) integer;
    }

    /** The complement of two: -x - 1. */
    static Object complement(Object value, Expression expression) {
        boolean isInteger = Values.number(value) instanceof Number number
                && !Values.isFloating(number)
                && !(number instanceof BigDecimal);
        if (!isInteger) {
            throw Evaluator.unsupported(expression);
        }
        return calculate(-1L, Expression.OP_SUB, value, expression);
    }

    /** The result for two values that are not null. A sum of values that are not two numbers is a text. */
    static Object calculate(Object left, Expression.Operator operator, Object right, Expression expression) {
        Object one = Values.number(left);
        Object other = Values.number(right);
        boolean areNumbers = one instanceof Number && other instanceof Number;
        boolean areCharacters = left instanceof Character && right instanceof Character;
        if (operator == Expression.OP_ADD && (!areNumbers || areCharacters)) {
            return "" + left + right;
        }
        if (!areNumbers) {
            throw Evaluator.unsupported(expression);
        }
        try {
            return ofNumbers((Number) one, operator, (Number) other, expression);
        } catch (ArithmeticException error) {
            throw new NucleusUserException(expression + " cannot be computed: " + error.getMessage(), error);
        }
    }

    private static Object ofNumbers(Number left, Expression.Operator operator, Number right, Expression expression) {
        if (Values.isFloating(left) || Values.isFloating(right)) {
            return ofFloating(left.doubleValue(), operator, right.doubleValue(), expression);
        }
        boolean isInteger = !(left instanceof BigDecimal) && !(right instanceof BigDecimal);
        BigDecimal result = ofDecimals(Values.decimal(left), operator, Values.decimal(right), isInteger, expression);
        if (!isInteger) {
            return result;
        }
        boolean isBig = left instanceof BigInteger || right instanceof BigInteger;
        return isBig ? (Object) result.toBigInteger() : (Object) result.longValueExact();
    }

    private static double ofFloating(double left, Expression.Operator operator, double right, Expression expression) {
        if (operator == Expression.OP_ADD) {
            return left + right;
        }
        if (operator == Expression.OP_SUB) {
            return left - right;
        }
        if (operator == Expression.OP_MUL) {
            return left * right;
        }
        if (operator == Expression.OP_DIV) {
            return left / right;
        }
        if (operator == Expression.OP_MOD) {
            return left % right;
        }
        throw Evaluator.unsupported(expression);
    }

    private static BigDecimal ofDecimals(
            BigDecimal left, Expression.Operator operator, BigDecimal right, boolean isInteger, Expression expression) {
        if (operator == Expression.OP_ADD) {
            return left.add(right);
        }
        if (operator == Expression.OP_SUB) {
            return left.subtract(right);
        }
        if (operator == Expression.OP_MUL) {
            return left.multiply(right);
        }
        if (operator == Expression.OP_MOD) {
            return left.remainder(right);
        }
        if (operator == Expression.OP_DIV) {
            return isInteger ? left.divideToIntegralValue(right) : left.divide(right, QUOTIENT);
        }
        throw Evaluator.unsupported(expression);
    }
}
