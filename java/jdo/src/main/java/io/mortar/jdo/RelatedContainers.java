package io.mortar.jdo;

import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.OwnerMember;
import java.util.Collection;
import java.util.Map;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.SCOCollection;

/** Removes an object from the containers of the objects that it refers to. */
final class RelatedContainers {
    private RelatedContainers() {}

    /** Removes an object from a container of another object, if the container is stored or loaded. It is not deleted therefore. */
    static void remove(MortarStoreManager store, DNStateManager element, Object owner, AbstractMemberMetaData container) {
        DNStateManager manager = loaded(store, element.getExecutionContext().findStateManager(owner), container);
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

    /** The state of an object with a loaded member; null if it is deleted, or if the member neither is stored nor was loaded. */
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
