package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.ContainerMapping;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.OwnerMember;
import io.mortar.jdo.mapping.ReferenceMapping;
import io.mortar.jdo.mapping.References;
import java.util.Collection;
import java.util.Map;
import java.util.Objects;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ClassMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.SCOCollection;

/** Adds an object to containers of the objects that it refers to, and removes it from them. */
final class RelatedContainers {
    private RelatedContainers() {}

    /**
     * Changes the containers of former and new owners of an object, if they are stored: a list has its elements in its
     * own record. Relations need not be managed for that: the references decide what the list contains, as they do for
     * containers that are not stored.
     *
     * @param positions the members of the object that were written
     * @param before the record of the object before; null if it is new
     */
    static void ownersChanged(
            MortarStoreManager store,
            DNStateManager element,
            ClassMapping mapping,
            int[] positions,
            Record before,
            Record now) {
        ExecutionContext context = element.getExecutionContext();
        for (int position : positions) {
            if (!(mapping.members().at(position) instanceof ReferenceMapping reference)) {
                continue;
            }
            int column = reference.column().number();
            Oid from = before == null ? null : (Oid) before.get(column);
            Oid to = (Oid) now.get(column);
            AbstractMemberMetaData container =
                    Objects.equals(from, to) ? null : storedContainer(store, context, reference);
            if (container == null) {
                continue;
            }
            if (from != null) {
                remove(store, element, References.of(context).object(from), container);
            }
            if (to != null) {
                add(store, element, References.of(context).object(to), container);
            }
        }
    }

    /** The container that is the other side of a reference, if it is stored; or null. */
    private static AbstractMemberMetaData storedContainer(
            MortarStoreManager store, ExecutionContext context, ReferenceMapping reference) {
        if (reference.member().getRelationType(context.getClassLoaderResolver()) != RelationType.MANY_TO_ONE_BI) {
            return null;
        }
        AbstractMemberMetaData container =
                reference.member().getRelatedMemberMetaData(context.getClassLoaderResolver())[0];
        AbstractClassMetaData owner = container.getAbstractClassMetaData();
        if (!(owner instanceof ClassMetaData) || owner.isEmbeddedOnly()) {
            return null;
        }
        return store.mapping(owner).members().named(container.getName()) instanceof ContainerMapping ? container : null;
    }

    private static void add(
            MortarStoreManager store, DNStateManager element, Object owner, AbstractMemberMetaData container) {
        DNStateManager manager = owner == null
                ? null
                : loaded(store, element.getExecutionContext().findStateManager(owner), container);
        if (manager != null
                && manager.provideField(container.getAbsoluteFieldNumber()) instanceof Collection<?> collection
                && !collection.contains(element.getObject())) {
            ((Collection<Object>) collection).add(element.getObject());
        }
    }

    /**
     * Removes an object from a container of another object, if the container is stored or loaded. It is not deleted
     * therefore.
     */
    static void remove(
            MortarStoreManager store, DNStateManager element, Object owner, AbstractMemberMetaData container) {
        DNStateManager manager = owner == null
                ? null
                : loaded(store, element.getExecutionContext().findStateManager(owner), container);
        if (manager == null) {
            return;
        }
        Object value = manager.provideField(container.getAbsoluteFieldNumber());
        if (value instanceof SCOCollection<?, ?> collection) {
            ((SCOCollection<?, Object>) collection).remove(element.getObject(), false);
        } else if (value instanceof Collection<?> collection) {
            collection.remove(element.getObject());
        } else if (value instanceof Map<?, ?> map) {
            map.values().remove(element.getObject());
            map.remove(element.getObject());
        }
    }

    /** Whether a loaded collection of an owner contains an object; null if the owner has no such collection. */
    static Boolean contains(DNStateManager element, Object owner, AbstractMemberMetaData container) {
        DNStateManager manager = element.getExecutionContext().findStateManager(owner);
        int position = container.getAbsoluteFieldNumber();
        return manager != null
                        && manager.isFieldLoaded(position)
                        && manager.provideField(position) instanceof Collection<?> collection
                ? (Boolean) collection.contains(element.getObject())
                : null;
    }

    /**
     * The state of an object with a loaded member; null if it is deleted, or if the member neither is stored nor was
     * loaded.
     */
    static DNStateManager loaded(MortarStoreManager store, DNStateManager manager, AbstractMemberMetaData member) {
        if (manager == null || OwnerMember.isDeleted(manager)) {
            return null;
        }
        int position = member.getAbsoluteFieldNumber();
        ClassMapping mapping = store.mapping(manager.getClassMetaData());
        if (!manager.isFieldLoaded(position) && mapping.members().at(position) instanceof InverseMapping) {
            return null;
        }
        try {
            manager.loadField(position);
            return manager;
        } catch (NucleusObjectNotFoundException missing) {
            return null;
        }
    }
}
