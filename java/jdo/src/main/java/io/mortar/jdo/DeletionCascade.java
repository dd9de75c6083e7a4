package io.mortar.jdo;

import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.Dependents;
import io.mortar.jdo.mapping.OwnerMember;
import java.util.Collection;
import java.util.Map;
import org.datanucleus.ExecutionContext;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.fieldmanager.DeleteFieldManager;

/**
 * What the deletion of an object does to the objects of its members: it deletes those that depend on the object, and
 * ends the references of the others to it if the relation has two sides.
 */
final class DeletionCascade extends DeleteFieldManager {
    private final MortarStoreManager store;
    private final DNStateManager deleted;
    private final ExecutionContext context;
    private final boolean deletesDependents;

    /** @param deletesDependents whether the objects that depend on the deleted one are deleted, too */
    DeletionCascade(MortarStoreManager store, DNStateManager deleted, boolean deletesDependents) {
        super(deleted);
        this.store = store;
        this.deleted = deleted;
        this.deletesDependents = deletesDependents;
        this.context = deleted.getExecutionContext();
    }

    @Override
    public void storeObjectField(int position, Object value) {
        AbstractMemberMetaData member =
                deleted.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position);
        RelationType relation = member.getRelationType(context.getClassLoaderResolver());
        if (value == null || relation == RelationType.NONE) {
            return;
        }
        Dependents.forEach(member, value, this::delete);
        if (value instanceof Map<?, ?> map) {
            clearOwner(member, map.keySet());
            clearOwner(member, map.values());
        } else if (Containers.isContainer(value)) {
            clearOwner(member, Containers.elements(value));
        } else if (!(deletesDependents && Dependents.object(member))
                && !member.isEmbedded()
                && RelationType.isBidirectional(relation)) {
            endReference(member, relation, value);
        }
    }

    private void delete(Object object) {
        if (deletesDependents
                && object != null
                && context.getApiAdapter().isPersistable(object)
                && !isDeleted(context.findStateManager(object))) {
            context.deleteObjectInternal(object);
        }
    }

    private static boolean isDeleted(DNStateManager manager) {
        return manager != null && OwnerMember.isDeleted(manager);
    }

    /** Ends the references of elements to the container's owner, which is deleted. */
    private void clearOwner(AbstractMemberMetaData container, Collection<?> elements) {
        OwnerMember ownerMember = OwnerMember.of(context, container);
        if (ownerMember != null) {
            Containers.elements(elements).forEach(element -> ownerMember.clear(deleted, element));
            return;
        }
        // The elements of a relation of many to many refer to this object if they store the relation.
        AbstractMemberMetaData[] related = container.getRelatedMemberMetaData(context.getClassLoaderResolver());
        if (related != null) {
            Containers.elements(elements)
                    .forEach(element -> RelatedContainers.remove(store, deleted, element, related[0]));
        }
    }

    private void endReference(AbstractMemberMetaData member, RelationType relation, Object other) {
        AbstractMemberMetaData related =
                member.getRelatedMemberMetaDataForObject(context.getClassLoaderResolver(), deleted.getObject(), other);
        if (related == null) {
            return;
        }
        if (relation == RelationType.MANY_TO_ONE_BI) {
            RelatedContainers.remove(store, deleted, other, related);
            return;
        }
        DNStateManager manager = RelatedContainers.loaded(store, context.findStateManager(other), related);
        if (manager != null && manager.provideField(related.getAbsoluteFieldNumber()) == deleted.getObject()) {
            manager.replaceFieldValue(related.getAbsoluteFieldNumber(), null);
            manager.flush();
        }
    }
}
