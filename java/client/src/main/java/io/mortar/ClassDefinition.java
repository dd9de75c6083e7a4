package io.mortar;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * The definition of a class that a client requests, for {@link Client#define}.
 *
 * <pre>{@code
 * ClassDefinition person = ClassDefinition.builder("Person")
 *         .required("name", FieldType.STRING)
 *         .field(FieldDefinition.required("age", FieldType.INT64).withDefault(18))
 *         .optional("boss", FieldType.reference("Person"))
 *         .build();
 * }</pre>
 */
public final class ClassDefinition {
    private final String name;
    private final String parent;
    private final List<FieldDefinition> fields;

    private ClassDefinition(Builder builder) {
        name = builder.name;
        parent = builder.parent;
        fields = List.copyOf(builder.fields);
    }

    /**
     * Returns a builder of a class without fields.
     *
     * @param name the class's name, which never changes: {@code Person}, or {@code com.example.Person}
     * @return the builder
     */
    public static Builder builder(String name) {
        return new Builder(name);
    }

    /**
     * Returns the class's name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Returns the name of the parent class.
     *
     * @return the name, if there is a parent
     */
    public Optional<String> parent() {
        return Optional.ofNullable(parent);
    }

    /**
     * Returns the class's own fields.
     *
     * @return the fields, unmodifiable
     */
    public List<FieldDefinition> fields() {
        return fields;
    }

    void write(MessageWriter out) {
        out.string(name).optional(parent, MessageWriter::string).list(fields, (message, field) -> field.write(message));
    }

    /** Builds the definition of a class. */
    public static final class Builder {
        private final String name;
        private String parent;
        private final List<FieldDefinition> fields = new ArrayList<>();

        private Builder(String name) {
            this.name = Objects.requireNonNull(name);
        }

        /**
         * Sets the parent class, whose fields objects of this class have, too.
         *
         * @param className the name of the parent class
         * @return this builder
         */
        public Builder parent(String className) {
            parent = Objects.requireNonNull(className);
            return this;
        }

        /**
         * Adds a field.
         *
         * @param field the field
         * @return this builder
         */
        public Builder field(FieldDefinition field) {
            fields.add(Objects.requireNonNull(field));
            return this;
        }

        /**
         * Adds a field that cannot be null.
         *
         * @param fieldName the field's name
         * @param type the type of its values
         * @return this builder
         */
        public Builder required(String fieldName, FieldType type) {
            return field(FieldDefinition.required(fieldName, type));
        }

        /**
         * Adds a field that can be null.
         *
         * @param fieldName the field's name
         * @param type the type of its values
         * @return this builder
         */
        public Builder optional(String fieldName, FieldType type) {
            return field(FieldDefinition.optional(fieldName, type));
        }

        /**
         * Returns the definition.
         *
         * @return the definition
         */
        public ClassDefinition build() {
            return new ClassDefinition(this);
        }
    }
}
