package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.ContainerMapping;
import io.mortar.jdo.mapping.EmbeddedMapping;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.MemberMappings;
import io.mortar.jdo.mapping.ValueCodec;
import java.util.HashSet;
import java.util.Set;

/** An expression in Mortar's query language, and what is known about it. */
sealed interface Term {
    /** The expression; null for a constant and for a relation without a column. */
    default String text() {
        return null;
    }

    /** How values are stored; null for other terms, and for a number that is computed and not an integer. */
    default ValueCodec codec() {
        return null;
    }

    /** The members of the object that this is or refers to; null if it has none, or none that are known. */
    default MemberMappings members() {
        return null;
    }

    /** The references that the expression follows: it is null if one of them is. */
    default Set<String> references() {
        return Set.of();
    }

    /** The tests of embedded objects without which the expression has zero in place of null. */
    default Set<String> presences() {
        return Set.of();
    }

    /** The value of a constant. */
    default Object constant() {
        return null;
    }

    default boolean isConstant() {
        return this instanceof Constant;
    }

    default boolean isNull() {
        return isConstant() && constant() == null;
    }

    /** Whether this is the candidate itself. */
    default boolean isCandidate() {
        return "this".equals(text());
    }

    /** Whether this may be null. */
    default boolean isNullable() {
        return !isCandidate()
                && (codec() == null
                        || codec().zero() == null
                        || !references().isEmpty()
                        || !presences().isEmpty());
    }

    default boolean isBoolean() {
        return false;
    }

    default boolean isText() {
        return false;
    }

    default boolean isNumber() {
        return false;
    }

    /** A value: of a member, an element of a container, or computed. */
    record Value(String text, ValueCodec codec, Set<String> references, Set<String> presences) implements Term {
        Value(String text, ValueCodec codec) {
            this(text, codec, Set.of(), Set.of());
        }

        /** The value of a function or an operator. */
        static Value computed(String text, ValueCodec codec, Term... operands) {
            Set<String> references = new HashSet<>();
            Set<String> presences = new HashSet<>();
            for (Term operand : operands) {
                references.addAll(operand.references());
                presences.addAll(operand.presences());
            }
            return new Value(text, codec, references, presences);
        }

        @Override
        public boolean isBoolean() {
            return codec != null && codec.type().equals(FieldType.BOOL);
        }

        /** A converter may store another text than that of the Java value. */
        @Override
        public boolean isText() {
            return codec != null && codec.keepsOrder() && codec.type().equals(FieldType.STRING);
        }

        @Override
        public boolean isNumber() {
            return codec == null || codec.isNumber();
        }
    }

    /**
     * An object.
     *
     * @param type its class, or null if that is not known
     */
    record Reference(String text, ClassMapping type, Set<String> references) implements Term {
        @Override
        public MemberMappings members() {
            return type == null ? null : type.members();
        }
    }

    /** An embedded object. */
    record Embedded(String text, EmbeddedMapping mapping, Set<String> references) implements Term {
        @Override
        public MemberMappings members() {
            return mapping.members();
        }

        /** The test whether it is not null; none if it never is. */
        Set<String> presence() {
            return mapping.member().isPrimaryKey() ? Set.of() : Set.of(text + " != null");
        }
    }

    /** An array, a collection or a map. */
    record Container(String text, ContainerMapping mapping, Set<String> references) implements Term {
        boolean isMap() {
            return mapping.shape() == ContainerMapping.Shape.MAP;
        }
    }

    /**
     * A collection whose elements refer to its owner.
     *
     * @param owner the object that has the collection
     */
    record Inverse(InverseMapping mapping, Term owner) implements Term {
        @Override
        public Set<String> references() {
            return owner.isCandidate() ? Set.of() : Set.of(owner.text());
        }
    }

    /** A large object. */
    record Content(String text, Set<String> references) implements Term {}

    /** A literal, a parameter, or what a subquery has found. */
    record Constant(Object constant) implements Term {}
}
