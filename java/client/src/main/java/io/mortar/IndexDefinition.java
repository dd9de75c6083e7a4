package io.mortar;

import java.util.List;
import java.util.Objects;

/**
 * The definition of an index that a client requests.
 *
 * @param className the class whose objects the index contains, with its subclasses
 * @param name the name of the index, unique in the space
 * @param fields the names of the fields, the most significant first; their types are not lists, sets or maps
 * @param unique whether no two objects may have the same values, none of them null
 */
public record IndexDefinition(String className, String name, List<String> fields, boolean unique) {
    /** Checks and copies the arguments. */
    public IndexDefinition {
        Objects.requireNonNull(className);
        Objects.requireNonNull(name);
        fields = List.copyOf(fields);
    }

    void write(MessageWriter out) {
        out.string(className).string(name).list(fields, MessageWriter::string).bool(unique);
    }
}
