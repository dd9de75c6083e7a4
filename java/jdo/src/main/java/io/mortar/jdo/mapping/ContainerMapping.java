package io.mortar.jdo.mapping;

import io.mortar.Oid;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.OrderMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.converters.TypeConversionHelper;

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

    private static final String DESCENDING = "DESC";
    /** The orders of values that are no objects. */
    private static final Set<String> DIRECTIONS = Set.of("", "ASC", DESCENDING);

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

    /** Whether null may be an element. A collection of objects leaves null out, as objects that no longer exist. */
    public boolean mayHaveNull() {
        return !element.isReference() || member().getType().isArray();
    }

    @Override
    Object read(RecordReader from) {
        Object stored = from.get(column());
        if (stored == null && !isOfInterface()) {
            return null;
        }
        if (shape == Shape.MAP) {
            return readMap(from, stored == null ? Map.of() : (Map<?, ?>) stored);
        }
        List<Object> elements = element.decode(from, stored == null ? List.of() : ordered((Collection<?>) stored));
        if (element.isReference()) {
            if (!mayHaveNull()) {
                elements.removeIf(Objects::isNull);
            }
            Containers.sort(from.context(), member(), elements);
        }
        return Containers.build(from.context(), member(), elements);
    }

    /** Stored values in their own order if the metadata asks for it: {@code @OrderBy} without a member. */
    private Collection<?> ordered(Collection<?> stored) {
        OrderMetaData order = member().getOrderMetaData();
        String ordering = order == null || order.getOrdering() == null
                ? null
                : order.getOrdering().strip().toUpperCase(Locale.ROOT);
        boolean isOrdered = !element.isReference() && ordering != null && DIRECTIONS.contains(ordering);
        if (!isOrdered || !stored.stream().allMatch(each -> each == null || each instanceof Comparable)) {
            return stored;
        }
        List<Comparable<Object>> values = new ArrayList<>((Collection<Comparable<Object>>) stored);
        Comparator<Comparable<Object>> ascending = Comparator.nullsFirst(Comparator.naturalOrder());
        values.sort(ordering.equals(DESCENDING) ? ascending.reversed() : ascending);
        return values;
    }

    /**
     * Whether the class is generated for an interface. It has no constructor that gives the member a container without
     * elements.
     */
    private boolean isOfInterface() {
        return member().getAbstractClassMetaData().isImplementationOfPersistentDefinition()
                && !member().getType().isArray();
    }

    private Object readMap(RecordReader from, Map<?, ?> stored) {
        Map<Object, Object> map = Containers.newMap(from.context(), member());
        Iterator<Object> keys = key.decode(from, stored.keySet()).iterator();
        Iterator<Object> values = element.decode(from, stored.values()).iterator();
        while (keys.hasNext()) {
            Object nextKey = keys.next();
            Object value = values.next();
            if (nextKey != null || !key.isReference()) {
                Containers.addExisting(from.context(), nextKey, () -> map.put(nextKey, value));
            }
        }
        return map;
    }

    @Override
    void write(RecordWriter to, Object value) {
        Object before = to.before(column());
        Map<Object, Object> written = new HashMap<>();
        Object stored = value == null ? null : encode(to, value, values(before), written);
        to.set(column(), stored);
        if (element.isReference()) {
            to.references().written(to.owner(), member());
            change(to, values(before), values(stored), written, OwnerMember.of(to.context(), member()), isDependent());
        }
        if (value != null
                && member().getOrderMetaData() != null
                && member().getOrderMetaData().getMappedBy() != null) {
            setPositions(
                    to, Containers.elements(value), member().getOrderMetaData().getMappedBy());
        }
        if (key != null && key.isReference() && Dependents.keys(member()) && Dependents.removed(member())) {
            change(to, keys(before), keys(stored), written, null, true);
        }
    }

    /** Sets the member by which the elements of a list have their positions in it. */
    private static void setPositions(RecordWriter to, List<Object> elements, String name) {
        for (int i = 0; i < elements.size(); i++) {
            DNStateManager manager = to.context().findStateManager(elements.get(i));
            if (manager == null || OwnerMember.isDeleted(manager)) {
                continue;
            }
            int position = manager.getClassMetaData().getAbsolutePositionOfMember(name);
            manager.loadField(position);
            Class<?> type = manager.getClassMetaData()
                    .getMetaDataForManagedMemberAtAbsolutePosition(position)
                    .getType();
            Object index = TypeConversionHelper.convertTo(i, type);
            if (!index.equals(manager.provideField(position))) {
                OwnerMember.replace(manager, position, index);
            }
        }
    }

    private boolean isDependent() {
        return Dependents.removed(member())
                && (shape == Shape.MAP ? Dependents.values(member()) : Dependents.elements(member()));
    }

    /**
     * Changes the objects that were added to the container and removed from it.
     *
     * @param written objects that the container has now, by their identifiers. They may not be stored yet
     */
    private void change(
            RecordWriter to,
            Collection<?> before,
            Collection<?> after,
            Map<Object, Object> written,
            OwnerMember ownerMember,
            boolean isDependent) {
        if (ownerMember != null || isDependent) {
            Set<Object> kept = new HashSet<>(before);
            kept.retainAll(after);
            List<Object> added = after.stream()
                    .filter(oid -> oid != null && !kept.contains(oid))
                    .map(written::get)
                    .toList();
            ContainerChange.of(objects(to, before, kept), added).apply(to, member(), ownerMember, isDependent);
        }
    }

    private static List<Object> objects(RecordWriter to, Collection<?> oids, Set<Object> without) {
        List<Oid> wanted = oids.stream()
                .filter(oid -> oid != null && !without.contains(oid))
                .map(Oid.class::cast)
                .toList();
        return wanted.isEmpty()
                ? List.of()
                : to.references().objects(wanted).stream()
                        .filter(Objects::nonNull)
                        .toList();
    }

    private static Collection<?> values(Object stored) {
        return stored == null ? List.of() : stored instanceof Map<?, ?> map ? map.values() : (Collection<?>) stored;
    }

    private static Collection<?> keys(Object stored) {
        return stored == null ? List.of() : ((Map<?, ?>) stored).keySet();
    }

    /** @param written receives the objects that are stored, by their identifiers */
    private Object encode(RecordWriter to, Object value, Collection<?> before, Map<Object, Object> written) {
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> stored = new LinkedHashMap<>();
            // A copy: an object that becomes persistent may change its hash code.
            for (Map.Entry<?, ?> entry : new ArrayList<>(map.entrySet())) {
                stored.put(encode(to, key, entry.getKey(), written), encode(to, element, entry.getValue(), written));
            }
            return stored;
        }
        Collection<Object> stored = shape == Shape.SET ? new LinkedHashSet<>() : new ArrayList<>();
        for (Object each : Containers.elements(value)) {
            if (!element.isReference() || !OwnerMember.isDeleted(to.context(), each)) {
                stored.add(encode(to, element, each, written));
                continue;
            }
            Object oid = to.references().identifier(each);
            Set<Object> leftOut = ((InverseMapping.Owner) to.owner()).leftOut(member());
            if (!before.contains(oid) && !leftOut.contains(oid)) {
                stored.add(identifier(to, to.references().restored(each, member()), written));
                continue;
            }
            leftOut.add(oid);
            if (mayHaveNull()) {
                stored.add(null);
            }
        }
        return stored;
    }

    private Object encode(RecordWriter to, Element form, Object value, Map<Object, Object> written) {
        return form.isReference() && value != null
                ? identifier(to, to.references().persistent(value, member()), written)
                : form.encode(to, member(), value);
    }

    private static Object identifier(RecordWriter to, Object persistent, Map<Object, Object> written) {
        Object oid = to.references().identifier(persistent);
        written.put(oid, persistent);
        return oid;
    }
}
