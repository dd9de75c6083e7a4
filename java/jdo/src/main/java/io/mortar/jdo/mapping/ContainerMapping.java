package io.mortar.jdo.mapping;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member with an array, a collection or a map of values or of references: one list, set or map. */
public final class ContainerMapping extends ColumnMapping {
    /** What the column holds. */
    public enum Shape {
        LIST,
        SET,
        MAP
    }

    private final Shape shape;
    /** Of maps only. */
    private final Element key;
    private final Element element;

    ContainerMapping(AbstractMemberMetaData member, Column column, Shape shape, Element key, Element element) {
        super(member, column);
        this.shape = shape;
        this.key = key;
        this.element = element;
    }

    public Shape shape() {
        return shape;
    }

    /** The keys of a map. */
    public Element key() {
        return key;
    }

    /** The elements of an array or a collection, or the values of a map. */
    public Element element() {
        return element;
    }

    @Override
    Object read(RecordReader from) {
        Object stored = from.get(column());
        if (stored == null) {
            return null;
        }
        if (shape == Shape.MAP) {
            return readMap(from, (Map<?, ?>) stored);
        }
        List<Object> elements = element.decode(from, (Collection<?>) stored);
        if (element.isReference()) {
            if (!member().getType().isArray()) {
                elements.removeIf(Objects::isNull);
            }
            Containers.sort(from.context(), member(), elements);
        }
        return Containers.build(from.context(), member(), elements);
    }

    private Object readMap(RecordReader from, Map<?, ?> stored) {
        Map<Object, Object> map = Containers.newMap(from.context(), member());
        Iterator<Object> keys = key.decode(from, stored.keySet()).iterator();
        Iterator<Object> values = element.decode(from, stored.values()).iterator();
        while (keys.hasNext()) {
            Object nextKey = keys.next();
            Object value = values.next();
            if (nextKey != null || !key.isReference()) {
                map.put(nextKey, value);
            }
        }
        return map;
    }

    @Override
    void write(RecordWriter to, Object value) {
        to.set(column(), value == null ? null : encode(to, value));
    }

    private Object encode(RecordWriter to, Object value) {
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> stored = new LinkedHashMap<>();
            // A copy: an object that becomes persistent may change its hash code.
            for (Map.Entry<?, ?> entry : new ArrayList<>(map.entrySet())) {
                stored.put(key.encode(to, member(), entry.getKey()), element.encode(to, member(), entry.getValue()));
            }
            return stored;
        }
        Collection<Object> stored = shape == Shape.SET ? new LinkedHashSet<>() : new ArrayList<>();
        for (Object each : Containers.elements(value)) {
            stored.add(element.encode(to, member(), each));
        }
        return stored;
    }
}
