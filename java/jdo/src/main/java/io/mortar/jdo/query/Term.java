package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.ContainerMapping;
import io.mortar.jdo.mapping.EmbeddedMapping;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.MemberMappings;
import io.mortar.jdo.mapping.ValueCodec;

/**
 * An expression in Mortar's query language, and what is known about it.
 *
 * @param text the expression; null for a constant and for a relation without a column
 * @param kind what it is
 * @param codec how values are stored; of values only, and null if the value is computed
 * @param type the class of the object that a reference refers to, or null
 * @param members the members of that object, or of an embedded one
 * @param container the mapping of an array, a collection or a map
 * @param inverse the relation, whose owner has the expression `owner`
 * @param owner of inverse relations: the object that has the collection
 * @param constant the value of a literal or a parameter
 * @param presence the test whether there is an embedded object; also of its values, and null if there always is one
 * @param isPath whether the expression is a path through a reference, so that it is null if the reference is
 */
record Term(
        String text,
        Kind kind,
        ValueCodec codec,
        ClassMapping type,
        MemberMappings members,
        ContainerMapping container,
        InverseMapping inverse,
        Term owner,
        Object constant,
        String presence,
        boolean isPath) {
    enum Kind {
        VALUE,
        REFERENCE,
        EMBEDDED,
        CONTAINER,
        INVERSE,
        CONTENT,
        CONSTANT
    }

    static Term value(String text, ValueCodec codec, boolean isPath) {
        return value(text, codec, null, isPath);
    }

    /** A value, perhaps of an embedded object. */
    static Term value(String text, ValueCodec codec, String presence, boolean isPath) {
        return new Term(text, Kind.VALUE, codec, null, null, null, null, null, null, presence, isPath);
    }

    static Term reference(String text, ClassMapping type, boolean isPath) {
        return new Term(
                text,
                Kind.REFERENCE,
                null,
                type,
                type == null ? null : type.members(),
                null,
                null,
                null,
                null,
                null,
                isPath);
    }

    static Term embedded(String text, EmbeddedMapping mapping, boolean isPath) {
        String presence = mapping.member().isPrimaryKey() ? null : text + " != null";
        return new Term(text, Kind.EMBEDDED, null, null, mapping.members(), null, null, null, null, presence, isPath);
    }

    static Term container(String text, ContainerMapping mapping, boolean isPath) {
        return new Term(text, Kind.CONTAINER, null, null, null, mapping, null, null, null, null, isPath);
    }

    static Term inverse(InverseMapping mapping, Term owner) {
        return new Term(null, Kind.INVERSE, null, null, null, null, mapping, owner, null, null, owner.isPath());
    }

    static Term content(String text, boolean isPath) {
        return new Term(text, Kind.CONTENT, null, null, null, null, null, null, null, null, isPath);
    }

    static Term constant(Object value) {
        return new Term(null, Kind.CONSTANT, null, null, null, null, null, null, value, null, false);
    }

    boolean isConstant() {
        return kind == Kind.CONSTANT;
    }

    boolean isNull() {
        return isConstant() && constant == null;
    }

    /** Whether this is a member of an embedded object that is stored as zero if the embedded object is null. */
    boolean isZeroForNull() {
        return kind == Kind.VALUE && presence != null && codec != null && codec.zero() != null;
    }

    boolean isBoolean() {
        return kind == Kind.VALUE && codec != null && codec.type().equals(FieldType.BOOL);
    }

    boolean isListOrSet() {
        return kind == Kind.CONTAINER && container.shape() != ContainerMapping.Shape.MAP;
    }

    boolean isText() {
        return kind == Kind.VALUE && (codec == null || codec.type().equals(FieldType.STRING));
    }

    boolean isNumber() {
        if (isConstant()) {
            return constant instanceof Number;
        }
        return kind == Kind.VALUE && (codec == null || isNumeric(codec.type()));
    }

    static boolean isNumeric(FieldType type) {
        return switch (type.kind()) {
            case INT64, FLOAT64, DECIMAL -> true;
            default -> false;
        };
    }
}
