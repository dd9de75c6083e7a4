package io.mortar;

import java.util.List;
import java.util.Optional;

/**
 * An index of the space.
 *
 * @param number the number of the index
 * @param name the name, unique in the space
 * @param classNumber the number of the class whose objects it contains, with its subclasses
 * @param fields the numbers of its fields, the most significant first
 * @param unique whether no two objects may have the same values, none of them null
 * @param ready whether it is built at all logical nodes, so that queries use it
 * @param problem what prevents that it becomes ready, such as two objects with the same values
 */
public record SchemaIndex(
        int number,
        String name,
        int classNumber,
        List<Integer> fields,
        boolean unique,
        boolean ready,
        Optional<String> problem) {
    static SchemaIndex read(MessageReader in) {
        return new SchemaIndex(
                in.u32(),
                in.string(),
                in.u32(),
                in.list(MessageReader::u32),
                in.bool(),
                in.bool(),
                in.maybe(MessageReader::string));
    }
}
