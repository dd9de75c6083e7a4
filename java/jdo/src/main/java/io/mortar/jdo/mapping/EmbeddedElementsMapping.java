package io.mortar.jdo.mapping;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractMemberMetaData;

/**
 * A member with a container of embedded objects, such as phone numbers of two members each. Each member of the embedded
 * class is a list, such as {@code phones_area} and {@code phones_number}; element <i>i</i> has the <i>i</i>-th values
 * of all lists. The keys of a map are another such list, {@code phones_key}.
 */
public final class EmbeddedElementsMapping extends MemberMapping {
    /** The number of elements; null if the container is null. */
    private final Column count;
    /** Of maps only. */
    private final Part keys;

    private final Part elements;

    /**
     * The keys or the elements.
     *
     * @param column the list of values or references; null for embedded objects
     * @param plain how values and references are stored; null for embedded objects
     * @param form how embedded objects are stored
     * @param lists the list that stores each column of their form
     */
    record Part(
            Column column, Element plain, EmbeddedForm form, Map<Column, Column> lists, PersistableObjectType type) {
        static Part plain(Column column, Element plain) {
            return new Part(column, plain, null, Map.of(), null);
        }

        static Part embedded(EmbeddedForm form, Map<Column, Column> lists, PersistableObjectType type) {
            return new Part(null, null, form, lists, type);
        }

        void forEachColumn(Consumer<Column> action) {
            if (column != null) {
                action.accept(column);
            }
            lists.values().forEach(action);
        }
    }

    EmbeddedElementsMapping(AbstractMemberMetaData member, Column count, Part keys, Part elements) {
        super(member);
        this.count = count;
        this.keys = keys;
        this.elements = elements;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        action.accept(count);
        if (keys != null) {
            keys.forEachColumn(action);
        }
        elements.forEachColumn(action);
    }

    @Override
    Object read(RecordReader from) {
        Object size = from.get(count);
        if (size == null) {
            return null;
        }
        List<Object> read = read(from, elements, ((Number) size).intValue());
        if (keys == null) {
            Containers.sort(from.context(), member(), read);
            return Containers.build(from.context(), member(), read);
        }
        Map<Object, Object> map = Containers.newMap(from.context(), member());
        Iterator<Object> values = read.iterator();
        read(from, keys, read.size()).forEach(key -> map.put(key, values.next()));
        return map;
    }

    private List<Object> read(RecordReader from, Part part, int size) {
        if (part.plain() != null) {
            return part.plain().decode(from, (List<?>) from.get(part.column()));
        }
        List<Object> read = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            int index = i;
            RecordReader row = from.from(column -> value(from.get(part.lists().get(column)), index));
            read.add(part.form().read(row, position(), part.type()));
        }
        return read;
    }

    /** A value of an element; null if the container was stored when its elements had no such member. */
    private static Object value(Object list, int index) {
        return list instanceof List<?> values && index < values.size() ? values.get(index) : null;
    }

    @Override
    void write(RecordWriter to, Object value) {
        if (value == null) {
            forEachColumn(column -> to.set(column, null));
        } else if (value instanceof Map<?, ?> map) {
            to.set(count, (long) map.size());
            write(to, keys, new ArrayList<>(map.keySet()));
            write(to, elements, new ArrayList<>(map.values()));
        } else {
            List<Object> list = Containers.elements(value);
            to.set(count, (long) list.size());
            write(to, elements, list);
        }
    }

    private void write(RecordWriter to, Part part, List<?> values) {
        if (part.plain() != null) {
            List<Object> stored = new ArrayList<>(values.size());
            for (Object value : values) {
                stored.add(part.plain().encode(to, member(), value));
            }
            to.set(part.column(), stored);
            return;
        }
        Map<Column, List<Object>> stored = new HashMap<>();
        part.lists().keySet().forEach(column -> stored.put(column, new ArrayList<>(values.size())));
        for (Object value : values) {
            if (value == null) {
                throw new NucleusUserException(
                        member().getFullFieldName() + " contains null, which has no members that could be stored");
            }
            Map<Column, Object> row = new HashMap<>();
            part.form().write(to.to(row::put), value, member(), part.type());
            stored.forEach((column, list) -> list.add(row.get(column)));
        }
        part.lists().forEach((column, list) -> to.set(list, stored.get(column)));
    }
}
