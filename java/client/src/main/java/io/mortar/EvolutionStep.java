package io.mortar;

import java.util.Objects;
import java.util.function.Consumer;

/** A change of a class that rewrites no record, for {@link Client#evolve}. {@code docs/catalogue.md} has the rules. */
public final class EvolutionStep {
    private static final int ADD = 1;
    private static final int REMOVE = 2;
    private static final int RENAME = 3;
    private static final int WIDEN = 4;
    private static final int SET_DEFAULT = 5;
    private static final int MAKE_OPTIONAL = 6;
    private static final int MAKE_REQUIRED = 7;

    private final Consumer<MessageWriter> encoding;
    private final String text;

    private EvolutionStep(String text, Consumer<MessageWriter> encoding) {
        this.text = text;
        this.encoding = encoding;
    }

    /**
     * Adds a field, which is optional or has a default. Older records have that default, or null, even if the default
     * changes later.
     *
     * @param field the field
     * @return the step
     */
    public static EvolutionStep addField(FieldDefinition field) {
        Objects.requireNonNull(field);
        return new EvolutionStep("add " + field.name(), out -> field.write(out.u8(ADD)));
    }

    /**
     * Removes a field that no index uses. Its value in older records is ignored; its number is never given again.
     *
     * @param name the field's name
     * @return the step
     */
    public static EvolutionStep removeField(String name) {
        Objects.requireNonNull(name);
        return new EvolutionStep("remove " + name, out -> out.u8(REMOVE).string(name));
    }

    /**
     * Renames a field.
     *
     * @param from its name
     * @param to its new name
     * @return the step
     */
    public static EvolutionStep renameField(String from, String to) {
        Objects.requireNonNull(from);
        Objects.requireNonNull(to);
        return new EvolutionStep(
                "rename " + from + " to " + to,
                out -> out.u8(RENAME).string(from).string(to));
    }

    /**
     * Widens the type of a field: int64 to float64 or decimal, a reference to one of a class above, a set to a list;
     * likewise the elements of lists and the values of maps. Older records are read as the new type:
     * {@link SchemaField#valueIn}.
     *
     * @param name the field's name
     * @param type the new type
     * @return the step
     */
    public static EvolutionStep widenField(String name, FieldType type) {
        Objects.requireNonNull(name);
        Objects.requireNonNull(type);
        return new EvolutionStep(
                "widen " + name + " to " + type, out -> type.write(out.u8(WIDEN).string(name)));
    }

    /**
     * Changes the default of a field for new objects.
     *
     * @param name the field's name
     * @param value the default; null for none
     * @return the step
     */
    public static EvolutionStep setDefault(String name, Object value) {
        Objects.requireNonNull(name);
        return new EvolutionStep(
                "set the default of " + name,
                out -> out.u8(SET_DEFAULT).string(name).optional(value, MessageWriter::value));
    }

    /**
     * Allows null in a field.
     *
     * @param name the field's name
     * @return the step
     */
    public static EvolutionStep makeOptional(String name) {
        Objects.requireNonNull(name);
        return new EvolutionStep(
                "make " + name + " optional", out -> out.u8(MAKE_OPTIONAL).string(name));
    }

    /**
     * Forbids null in a field that has a default. A null in an older record is read as the default.
     *
     * @param name the field's name
     * @return the step
     */
    public static EvolutionStep makeRequired(String name) {
        Objects.requireNonNull(name);
        return new EvolutionStep(
                "make " + name + " required", out -> out.u8(MAKE_REQUIRED).string(name));
    }

    void write(MessageWriter out) {
        encoding.accept(out);
    }

    /** Returns what the step does, for people. */
    @Override
    public String toString() {
        return text;
    }
}
