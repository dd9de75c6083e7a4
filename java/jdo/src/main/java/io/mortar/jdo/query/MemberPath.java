package io.mortar.jdo.query;

import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.ColumnMapping;
import io.mortar.jdo.mapping.EmbeddedMapping;
import io.mortar.jdo.mapping.MemberMapping;
import io.mortar.jdo.mapping.OptionalMapping;
import java.util.ArrayList;
import java.util.List;
import org.datanucleus.exceptions.NucleusUserException;

/** A member of a class, perhaps in embedded objects, as a path in a query. */
public record MemberPath(MemberMapping mapping, String text) {
    /** The path of a member, with dots before the members of embedded objects. */
    public static MemberPath of(ClassMapping type, String path) {
        MemberMapping mapping = mapping(type, path);
        return new MemberPath(mapping, QueryText.quote(columnOf(mapping, type, path)));
    }

    /** The keys by which objects are ordered by a member: several for an embedded object. */
    public static List<String> orderKeys(ClassMapping type, String path) {
        if (mapping(type, path) instanceof EmbeddedMapping embedded) {
            List<String> keys = new ArrayList<>();
            for (int position : embedded.members().positions()) {
                embedded.members().at(position).forEachColumn(column -> keys.add(QueryText.quote(column.name())));
            }
            return keys;
        }
        return List.of(of(type, path).text());
    }

    private static MemberMapping mapping(ClassMapping type, String path) {
        MemberMapping mapping = type.members().atEnd(path);
        if (mapping == null) {
            throw new NucleusUserException(type + " has no persistent member " + path);
        }
        return mapping;
    }

    private static String columnOf(MemberMapping mapping, ClassMapping type, String path) {
        if (mapping instanceof ColumnMapping stored) {
            return stored.column().name();
        }
        if (mapping instanceof OptionalMapping optional) {
            return columnOf(optional.content(), type, path);
        }
        throw new NucleusUserException(path + " of " + type + " is not stored as one value");
    }
}
