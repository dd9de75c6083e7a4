package io.mortar.jdo.mapping;

import io.mortar.FieldType;
import java.util.function.Function;

/**
 * Converts values of a Java type to values of a Mortar type and back. Nulls are not converted.
 *
 * @param type the Mortar type
 * @param keepsOrder whether stored values compare like the Java values, so that a brick may compare and sort them
 * @param toStored converts a Java value
 * @param toJava converts a stored value
 * @param zero the stored form of the Java type's initial value if the type is primitive, otherwise null
 */
public record ValueCodec(
        FieldType type,
        boolean keepsOrder,
        Function<Object, Object> toStored,
        Function<Object, Object> toJava,
        Object zero) {
    /** The Java form of a character. */
    static final Function<Object, Object> CHARACTER = stored -> ((String) stored).charAt(0);

    /** Strings. */
    public static final ValueCodec TEXT = of(FieldType.STRING, v -> v, v -> v);

    static ValueCodec of(FieldType type, Function<Object, Object> toStored, Function<Object, Object> toJava) {
        return new ValueCodec(type, true, toStored, toJava, null);
    }

    static ValueCodec unordered(FieldType type, Function<Object, Object> toStored, Function<Object, Object> toJava) {
        return new ValueCodec(type, false, toStored, toJava, null);
    }

    ValueCodec withZero(Object stored) {
        return new ValueCodec(type, keepsOrder, toStored, toJava, stored);
    }

    /** Whether the stored values are numbers. */
    public boolean isNumeric() {
        return switch (type.kind()) {
            case INT64, FLOAT64, DECIMAL -> true;
            default -> false;
        };
    }

    /** Whether the Java values are numbers; constants of an enumeration that are stored as their ordinals are not. */
    public boolean isNumber() {
        return keepsOrder && isNumeric() && decode(0L) instanceof Number;
    }

    /** Whether the Java values are characters, which are also numbers. */
    public boolean isCharacter() {
        return toJava == CHARACTER;
    }

    public Object encode(Object value) {
        return value == null ? null : toStored.apply(value);
    }

    public Object decode(Object stored) {
        return stored == null ? null : toJava.apply(stored);
    }
}
