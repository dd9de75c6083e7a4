package io.mortar.jdo.query;

import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.QueryUtils;
import org.datanucleus.util.ClassUtils;

/**
 * Refuses a result class that cannot have the rows of a result: JDO 3.2, section 14.6.12. It has a constructor for the
 * values, or one without arguments and, for each value, a public field, a setter, or {@code put}.
 */
final class ResultClassCheck {
    /** The numbers that Java widens, from the narrowest. */
    private static final List<Class<?>> WIDENING =
            List.of(byte.class, short.class, int.class, long.class, float.class, double.class);

    private final Class<?> type;

    /**
     * A value of a row.
     *
     * @param name its name in the result; null if it has none
     * @param type its type; null if that is not known
     */
    record Value(String name, Class<?> type) {}

    private ResultClassCheck(Class<?> type) {
        this.type = type;
    }

    static void check(Class<?> type, List<Value> values) {
        if (type == Object[].class || type == Map.class || type == Object.class) {
            return;
        }
        ResultClassCheck check = new ResultClassCheck(type);
        boolean isOne = values.size() == 1;
        if (QueryUtils.resultClassIsSimple(type.getName())) {
            if (!isOne || !check.isOf(values.get(0).type())) {
                throw new NucleusUserException(
                        "the result has " + (isOne ? "a " + values.get(0).type().getName() : values.size() + " values")
                                + ", and the result class is " + type.getName());
            }
        } else if (!(isOne && check.isOf(values.get(0).type())) && !check.hasConstructor(values)) {
            check.checkMembers(values);
        }
    }

    /** Refuses a constructor call for which there is no constructor. */
    static void checkConstructor(Class<?> type, int arguments) {
        if (Arrays.stream(type.getDeclaredConstructors()).noneMatch(each -> each.getParameterCount() == arguments)) {
            throw new NucleusUserException(type.getName() + " has no constructor with " + arguments + " arguments");
        }
    }

    /** Whether a value of a type, which may be unknown, is one of the result class. */
    private boolean isOf(Class<?> value) {
        return value == null || type.isAssignableFrom(boxed(value));
    }

    private boolean hasConstructor(List<Value> values) {
        return Arrays.stream(type.getDeclaredConstructors()).anyMatch(each -> accepts(each, values));
    }

    private static boolean accepts(Constructor<?> constructor, List<Value> values) {
        Class<?>[] parameters = constructor.getParameterTypes();
        if (parameters.length != values.size()) {
            return false;
        }
        for (int i = 0; i < parameters.length; i++) {
            Class<?> value = values.get(i).type();
            if (value != null
                    && !boxed(parameters[i]).isAssignableFrom(boxed(value))
                    && !isWidened(value, parameters[i])) {
                return false;
            }
        }
        return true;
    }

    private static boolean isWidened(Class<?> from, Class<?> to) {
        Class<?> primitive = ClassUtils.getPrimitiveTypeForType(from);
        int position = WIDENING.indexOf(primitive == null ? from : primitive);
        return position >= 0 && WIDENING.indexOf(to) > position;
    }

    private static Class<?> boxed(Class<?> type) {
        Class<?> boxed = ClassUtils.getWrapperTypeForPrimitiveType(type);
        return boxed == null ? type : boxed;
    }

    private void checkMembers(List<Value> values) {
        boolean isCreated = !type.isInterface()
                && !Modifier.isAbstract(type.getModifiers())
                && Arrays.stream(type.getDeclaredConstructors()).anyMatch(each -> each.getParameterCount() == 0);
        if (!isCreated) {
            throw new NucleusUserException(type.getName()
                    + " has neither a constructor for the values of the result nor one without arguments");
        }
        for (Value each : values) {
            if (each.name() != null && !hasMember(each)) {
                throw new NucleusUserException(type.getName() + " has no public field, setter or put for " + each.name()
                        + (each.type() == null ? "" : ", a " + each.type().getName()));
            }
        }
    }

    private boolean hasMember(Value value) {
        Field field = ClassUtils.getFieldForClass(type, value.name());
        if (field != null && Modifier.isPublic(field.getModifiers()) && isConvertible(value.type(), field.getType())) {
            return true;
        }
        String setter = "set" + value.name().substring(0, 1).toUpperCase()
                + value.name().substring(1);
        return hasMethod(each -> each.getName().equals(setter)
                        && each.getParameterCount() == 1
                        && isConvertible(value.type(), each.getParameterTypes()[0]))
                || hasMethod(each -> each.getName().equals("put") && each.getParameterCount() == 2);
    }

    private boolean hasMethod(Predicate<Method> test) {
        return Arrays.stream(type.getMethods()).filter(each -> !isStatic(each)).anyMatch(test);
    }

    private static boolean isStatic(Executable method) {
        return Modifier.isStatic(method.getModifiers());
    }

    /** Whether a member may get a value: a number does not become a text, nor the reverse. */
    private static boolean isConvertible(Class<?> value, Class<?> member) {
        return value == null
                || isText(value) == isText(member)
                || boxed(member).isAssignableFrom(boxed(value))
                || !isText(value) && !Number.class.isAssignableFrom(boxed(value))
                || !isText(member) && !Number.class.isAssignableFrom(boxed(member));
    }

    private static boolean isText(Class<?> type) {
        return Set.<Class<?>>of(String.class, char.class, Character.class).contains(type);
    }
}
