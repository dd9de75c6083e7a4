package io.mortar.jdo.mapping;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.datanucleus.api.ApiAdapter;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/**
 * The object, or a collection or map of the objects, that refer to this one: the other side of a relation that these objects
 * own. It has no column. The objects are found by an index of their reference, or by a scan of their class if each refers to
 * several owners; so both sides always agree, and two transactions that add elements do not write the same object.
 */
public final class InverseMapping extends MemberMapping {
    private final AbstractClassMetaData elementClass;

    InverseMapping(AbstractMemberMetaData member, AbstractClassMetaData elementClass) {
        super(member);
        this.elementClass = elementClass;
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

    @Override
    Object read(RecordReader from) {
        References references = from.references();
        List<Object> elements = references.referrers(references.identifier(from.owner().getObject()), this);
        if (!member().hasContainer()) {
            return elements.isEmpty() ? null : elements.get(0);
        }
        if (!member().hasMap()) {
            return Containers.build(from.context(), member(), elements);
        }
        Map<Object, Object> map = Containers.newMap(from.context(), member());
        String keyMember = member().getKeyMetaData() == null ? null : member().getKeyMetaData().getMappedBy();
        for (Object element : elements) {
            map.put(keyOf(from, element, keyMember), element);
        }
        return map;
    }

    private Object keyOf(RecordReader from, Object element, String keyMember) {
        DNStateManager manager = from.context().findStateManager(element);
        AbstractClassMetaData metadata = manager.getClassMetaData();
        int position = keyMember == null ? metadata.getPKMemberPositions()[0] : metadata.getAbsolutePositionOfMember(keyMember);
        manager.loadField(position);
        return manager.provideField(position);
    }

    @Override
    void write(RecordWriter to, Object value) {
        if (value == null || !member().isCascadePersist()) {
            return;
        }
        ApiAdapter api = to.context().getApiAdapter();
        for (Object element : member().hasContainer() ? Containers.elements(value) : List.of(value)) {
            if (element != null && !api.isPersistent(element)) {
                to.references().persist(element, member());
            }
        }
    }
}
