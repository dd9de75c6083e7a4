package io.mortar.jdo.query;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import org.datanucleus.enhancement.Persistable;

/**
 * Objects by a value that each has, to find those whose value may be {@linkplain Values#isSame the same} as another one
 * without comparing it with each. What is found has to be compared; nothing is missed.
 */
final class ValueIndex {
    private final Collection<Object> all;
    private final Map<Object, List<Object>> byValue = new HashMap<>();
    /** What all values are: those of one kind are found by their hash. Null if there are no values. */
    private Class<?> kind;

    private boolean isOfOneKind = true;

    ValueIndex(Collection<Object> objects, Function<Object, Object> value) {
        all = objects;
        for (Object each : objects) {
            add(value.apply(each), each);
        }
    }

    private void add(Object value, Object object) {
        if (value != null) {
            isOfOneKind &= kind == null || kind == kindOf(value);
            kind = kindOf(value);
        }
        byValue.computeIfAbsent(Values.hashable(value), unused -> new ArrayList<>())
                .add(object);
    }

    private static Class<?> kindOf(Object value) {
        // A float and a double can be the same without equal hashes.
        return value instanceof Number
                ? value instanceof Float ? Float.class : Number.class
                : value instanceof Persistable
                        ? Persistable.class
                        : Values.plain(value) instanceof String ? String.class : value.getClass();
    }

    /** The objects whose value may be the same as this one. */
    Collection<Object> candidates(Object value) {
        boolean isFound = value == null || isOfOneKind && Objects.equals(kind, kindOf(value)) && !kind.isArray();
        return isFound ? byValue.getOrDefault(Values.hashable(value), List.of()) : all;
    }
}
