package io.mortar;

import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * A class of the space. {@link Schema#fieldsOf} has the fields that it inherits, too.
 *
 * @param number the number of the class, as in {@link Oid#classNumber}, which never changes
 * @param name the class's name, which never changes
 * @param parent the number of the parent class
 * @param version the number of this version; versions count from 1
 * @param fields the class's own fields by ascending number
 */
public record SchemaClass(int number, String name, OptionalInt parent, int version, List<SchemaField> fields) {
    static SchemaClass read(MessageReader in) {
        int number = in.u32();
        String name = in.string();
        OptionalInt parent = in.bool() ? OptionalInt.of(in.u32()) : OptionalInt.empty();
        return new SchemaClass(number, name, parent, in.u32(), in.list(SchemaField::read));
    }

    /**
     * Finds an own field by its name.
     *
     * @param fieldName the field's name
     * @return the field, if the class itself has it
     */
    public Optional<SchemaField> field(String fieldName) {
        return fields.stream().filter(field -> field.name().equals(fieldName)).findFirst();
    }
}
