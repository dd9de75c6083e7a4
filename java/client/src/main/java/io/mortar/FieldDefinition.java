package io.mortar;

import java.util.Objects;

/**
 * The definition of a field that a client requests.
 *
 * @param name the field's name: a Java identifier
 * @param type the type of its values
 * @param optional whether it can be null
 * @param defaultValue the default value for new objects, and, if the field is added to a class that exists, for older
 *     ones; null for none
 */
public record FieldDefinition(String name, FieldType type, boolean optional, Object defaultValue) {
    /** Checks that there are a name and a type. */
    public FieldDefinition {
        Objects.requireNonNull(name);
        Objects.requireNonNull(type);
    }

    /**
     * Returns the definition of a field that cannot be null.
     *
     * @param name the field's name
     * @param type the type of its values
     * @return the definition
     */
    public static FieldDefinition required(String name, FieldType type) {
        return new FieldDefinition(name, type, false, null);
    }

    /**
     * Returns the definition of a field that can be null.
     *
     * @param name the field's name
     * @param type the type of its values
     * @return the definition
     */
    public static FieldDefinition optional(String name, FieldType type) {
        return new FieldDefinition(name, type, true, null);
    }

    /**
     * Returns the same definition with a default.
     *
     * @param value the default value, of the field's type
     * @return another definition
     */
    public FieldDefinition withDefault(Object value) {
        return new FieldDefinition(name, type, optional, Objects.requireNonNull(value));
    }

    void write(MessageWriter out) {
        out.string(name);
        type.write(out);
        out.bool(optional).optional(defaultValue, MessageWriter::value);
    }
}
