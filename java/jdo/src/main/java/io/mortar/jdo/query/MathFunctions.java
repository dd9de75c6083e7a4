package io.mortar.jdo.query;

import static java.util.Map.entry;

import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.DoubleBinaryOperator;
import java.util.function.DoubleUnaryOperator;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * The functions of {@link Math} for an evaluation in memory, with numbers of all types: JDO 3.2, section 14.6.2, gives
 * them the semantics of Java, so their values are doubles. Those of DataNucleus refuse some types, and have values of
 * the types of their arguments.
 */
final class MathFunctions {
    private static final String CLASS = "MATH.";

    private static final Map<String, DoubleUnaryOperator> OF_ONE = Map.ofEntries(
            entry("SQRT", Math::sqrt),
            entry("SIN", Math::sin),
            entry("COS", Math::cos),
            entry("TAN", Math::tan),
            entry("COT", angle -> 1 / Math.tan(angle)),
            entry("ASIN", Math::asin),
            entry("ACOS", Math::acos),
            entry("ATAN", Math::atan),
            entry("SINH", Math::sinh),
            entry("COSH", Math::cosh),
            entry("TANH", Math::tanh),
            entry("EXP", Math::exp),
            entry("LOG", Math::log),
            entry("CEIL", Math::ceil),
            entry("CEILING", Math::ceil),
            entry("FLOOR", Math::floor),
            entry("TODEGREES", Math::toDegrees),
            entry("DEGREES", Math::toDegrees),
            entry("TORADIANS", Math::toRadians),
            entry("RADIANS", Math::toRadians));

    private static final Map<String, DoubleBinaryOperator> OF_TWO = Map.of("ATAN2", Math::atan2, "POWER", Math::pow);

    private MathFunctions() {}

    /** Whether there is a function with a name, with or without its class, for a number of arguments. */
    static boolean has(String name, int arguments) {
        return (arguments == 1 ? OF_ONE : arguments == 2 ? OF_TWO : Map.of()).containsKey(plain(name));
    }

    /**
     * The value of a function; null if an argument is null.
     *
     * @throws NucleusUserException if an argument is not a number
     */
    static Double call(String name, List<Object> arguments) {
        if (arguments.contains(null)) {
            return null;
        }
        double first = number(name, arguments.get(0));
        return arguments.size() == 1
                ? OF_ONE.get(plain(name)).applyAsDouble(first)
                : OF_TWO.get(plain(name)).applyAsDouble(first, number(name, arguments.get(1)));
    }

    private static String plain(String name) {
        String upper = name.toUpperCase(Locale.ROOT);
        return upper.startsWith(CLASS) ? upper.substring(CLASS.length()) : upper;
    }

    private static double number(String function, Object value) {
        if (Values.number(value) instanceof Number number) {
            return number.doubleValue();
        }
        throw new NucleusUserException(function + " of a " + value.getClass().getName() + ", which is not a number");
    }
}
