package io.mortar.jdo.mapping;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Consumer;
import org.datanucleus.ExecutionContext;
import org.datanucleus.api.ApiAdapter;
import org.datanucleus.exceptions.ReachableObjectNotCascadedException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/**
 * The object, or a collection or map of the objects, that refer to this one: the other side of a relation that these
 * objects own. It has no column. The objects are found by an index of their reference, or by a scan of their class if
 * each refers to several owners; so both sides always agree, and two transactions that add elements do not write the
 * same object.
 */
public final class InverseMapping extends MemberMapping {
    private final AbstractClassMetaData elementClass;
    /** Whether the elements are the keys of a map, whose values are members of them. */
    private final boolean hasKeys;

    /** The state of an object, which keeps what its inverse containers contained when they were read or written. */
    public interface Owner {
        /** The elements that a container had; null if it was not read. */
        List<Object> elementsOf(InverseMapping container);

        void rememberElements(InverseMapping container, List<Object> elements);

        /** Whether the application has assigned a member in this transaction. */
        boolean isAssigned(int position);

        /**
         * Fails if this flush has made the member refer to an object because of its container, while the container of
         * another object has this one, too.
         */
        void requireOneOwner(int position, Object other);

        /**
         * The identifiers of deleted objects that this transaction has left out when it wrote a container, which may be
         * written again before it loses them.
         */
        Set<Object> leftOut(AbstractMemberMetaData container);
    }

    InverseMapping(AbstractMemberMetaData member, AbstractClassMetaData elementClass) {
        super(member);
        this.elementClass = elementClass;
        this.hasKeys = member.hasMap()
                && member.getValueMetaData() != null
                && member.getValueMetaData().getMappedBy() != null;
    }

    /** The class of the elements. */
    public AbstractClassMetaData elementClass() {
        return elementClass;
    }

    /** The member of the elements that refers to the owner; perhaps a path with dots through embedded objects. */
    public String elementMember() {
        return member().getMappedBy();
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        // The elements have the column.
    }

    /** What the store has for this member of an object, whatever the object itself has. */
    public Object stored(DNStateManager owner) {
        return read(RecordReader.of(owner.getExecutionContext(), owner, null, null));
    }

    @Override
    Object read(RecordReader from) {
        References references = from.references();
        List<Object> elements =
                references.referrers(references.identifier(from.owner().getObject()), this);
        ((Owner) from.owner()).rememberElements(this, elements);
        if (!member().hasContainer()) {
            return elements.isEmpty() ? null : elements.get(0);
        }
        if (!member().hasMap()) {
            return Containers.build(from.context(), member(), elements);
        }
        Map<Object, Object> map = Containers.newMap(from.context(), member());
        for (Object element : elements) {
            Object partner = partnerOf(from.context(), element);
            map.put(hasKeys ? element : partner, hasKeys ? partner : element);
        }
        return map;
    }

    /** The key of an element that is a value, or the value of an element that is a key. */
    private Object partnerOf(ExecutionContext context, Object element) {
        DNStateManager manager = context.findStateManager(element);
        int position = partnerPosition(manager.getClassMetaData());
        manager.loadField(position);
        return manager.provideField(position);
    }

    private int partnerPosition(AbstractClassMetaData metadata) {
        String name = hasKeys
                ? member().getValueMetaData().getMappedBy()
                : member().getKeyMetaData() == null
                        ? null
                        : member().getKeyMetaData().getMappedBy();
        return name == null ? metadata.getPKMemberPositions()[0] : metadata.getAbsolutePositionOfMember(name);
    }

    @Override
    void write(RecordWriter to, Object value) {
        List<Object> before = elementsBefore(to);
        List<Object> partnersBefore = isPartnerDependent() ? partnersOf(to.context(), before) : List.of();
        List<Object> elements = new ArrayList<>();
        if (value instanceof Map<?, ?> map) {
            // A copy: an object that becomes persistent may change its hash code.
            for (Map.Entry<?, ?> entry : new ArrayList<>(map.entrySet())) {
                elements.add(writeEntry(to, entry.getKey(), entry.getValue()));
            }
        } else if (value != null) {
            List<Object> all = member().hasContainer() ? Containers.elements(value) : List.of(value);
            Set<Object> known = Collections.newSetFromMap(new IdentityHashMap<>());
            known.addAll(before);
            all.forEach(element -> elements.add(
                    OwnerMember.isDeleted(to.context(), element) && !known.contains(element)
                            ? to.references().restored(element, member())
                            : persistent(to, element)));
        }
        elements.removeIf(Objects::isNull);
        ((Owner) to.owner()).rememberElements(this, elements);
        to.references().written(to.owner(), member());
        ContainerChange change = ContainerChange.of(before, elements);
        change.apply(to, member(), OwnerMember.of(to.context(), member()), isDependent());
        if (!partnersBefore.isEmpty()) {
            change.removed().forEach(element -> clearPartner(to.context(), element));
            ContainerChange.of(partnersBefore, partnersOf(to.context(), elements))
                    .apply(to, member(), null, true);
        }
    }

    /** The objects that are the keys of elements, or their values. */
    private List<Object> partnersOf(ExecutionContext context, List<Object> elements) {
        return elements.stream()
                .filter(element -> !OwnerMember.isDeleted(context, element))
                .map(element -> partnerOf(context, element))
                .filter(partner -> context.getApiAdapter().isPersistable(partner))
                .toList();
    }

    /** Ends the reference of an element that has left the map to its key or value, which is deleted. */
    private void clearPartner(ExecutionContext context, Object element) {
        DNStateManager manager = context.findStateManager(element);
        if (manager == null || OwnerMember.isDeleted(manager)) {
            return;
        }
        int position = partnerPosition(manager.getClassMetaData());
        boolean isKey = manager.getClassMetaData()
                .getMetaDataForManagedMemberAtAbsolutePosition(position)
                .isPrimaryKey();
        if (!isKey && partnerOf(context, element) != null) {
            OwnerMember.replace(manager, position, null);
        }
    }

    /** Whether the keys of elements, or their values, are deleted when their entries are removed from the map. */
    private boolean isPartnerDependent() {
        return member().hasMap()
                && Dependents.removed(member())
                && (hasKeys ? Dependents.values(member()) : Dependents.keys(member()));
    }

    private boolean isDependent() {
        return Dependents.removed(member()) && isDeletedWithOwner();
    }

    private boolean isDeletedWithOwner() {
        if (!member().hasMap()) {
            return Dependents.elements(member()) || !member().hasContainer() && Dependents.object(member());
        }
        return hasKeys ? Dependents.keys(member()) : Dependents.values(member());
    }

    private List<Object> elementsBefore(RecordWriter to) {
        if (to.isNew()) {
            return List.of();
        }
        List<Object> known = ((Owner) to.owner()).elementsOf(this);
        return known != null
                ? known
                : to.references()
                        .referrers(to.references().identifier(to.owner().getObject()), this);
    }

    /** Stores an entry of a map. Its element gets the other part of the entry. */
    private Object writeEntry(RecordWriter to, Object key, Object value) {
        Object element = persistent(to, hasKeys ? key : value);
        Object partner = hasKeys ? value : key;
        if (partner != null && to.context().getApiAdapter().isPersistable(partner)) {
            partner = persistent(to, partner);
        }
        DNStateManager manager = element == null ? null : to.context().findStateManager(element);
        if (manager == null || OwnerMember.isDeleted(manager)) {
            return element;
        }
        int position = partnerPosition(manager.getClassMetaData());
        if (!manager.getClassMetaData()
                .getMetaDataForManagedMemberAtAbsolutePosition(position)
                .isPrimaryKey()) {
            manager.loadField(position);
            if (!Objects.equals(manager.provideField(position), partner)) {
                OwnerMember.replace(manager, position, partner);
            }
        }
        return element;
    }

    /** An element as an object of the context. It becomes persistent if the member says so. */
    private Object persistent(RecordWriter to, Object element) {
        ApiAdapter api = to.context().getApiAdapter();
        if (element == null || api.isPersistent(element)) {
            return element;
        }
        if (member().isCascadePersist()) {
            return to.references().persistent(element, member());
        }
        if (!api.isDetached(element) && !api.isDeleted(element)) {
            throw new ReachableObjectNotCascadedException(member().getFullFieldName(), element);
        }
        return element;
    }
}
