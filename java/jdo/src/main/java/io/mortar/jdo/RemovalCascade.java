package io.mortar.jdo;

import io.mortar.jdo.mapping.Dependents;
import io.mortar.jdo.mapping.OwnerMember;
import org.datanucleus.ExecutionContext;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.fieldmanager.DeleteFieldManager;

/**
 * Removes the entities to which {@code EntityManager.remove} cascades, at once: from then on {@code contains} is false
 * for them. The flush deletes them, and ends the references of the others.
 */
final class RemovalCascade extends DeleteFieldManager {
    private final DNStateManager removed;
    private final ExecutionContext context;

    RemovalCascade(DNStateManager removed) {
        super(removed);
        this.removed = removed;
        this.context = removed.getExecutionContext();
    }

    @Override
    public void storeObjectField(int position, Object value) {
        AbstractMemberMetaData member =
                removed.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position);
        // If no object of the class was stored yet, DataNucleus cascades by itself.
        if (Dependents.areKnown(member)) {
            Dependents.forEach(member, value, this::remove);
        }
    }

    private void remove(Object object) {
        DNStateManager manager = object == null ? null : context.findStateManager(object);
        if (manager != null && !manager.isEmbedded() && !OwnerMember.isDeleted(manager)) {
            context.deleteObjectInternal(object);
        }
    }
}
