package io.mortar.jdo.mapping;

import java.util.Collection;
import java.util.List;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.state.DNStateManager;

/**
 * The member by which each element of a container refers to its owner, the object that has the container. It is changed
 * when an element is added or removed, so both sides of the relation agree.
 *
 * <p>DataNucleus manages relations too, but neither those of maps, nor elements whose member is not loaded or that
 * become persistent with the container.
 */
public final class OwnerMember {
    private final ExecutionContext context;
    /** Names of members; each but the last is an embedded object. */
    private final String[] path;

    private OwnerMember(ExecutionContext context, String path) {
        this.context = context;
        this.path = path.split("\\.");
    }

    /**
     * The member of the elements of a container; null if they do not refer to the owner, or the container itself is the
     * relation.
     */
    public static OwnerMember of(ExecutionContext context, AbstractMemberMetaData container) {
        String path = container.getMappedBy();
        if (path == null
                && container.getRelationType(context.getClassLoaderResolver()) == RelationType.ONE_TO_MANY_BI) {
            path = container.getRelatedMemberMetaData(context.getClassLoaderResolver())[0].getName();
        }
        return path == null ? null : new OwnerMember(context, path);
    }

    /** Makes an element refer to an owner, unless the application has made it refer to another one, or to none. */
    void set(DNStateManager owner, Object element) {
        DNStateManager holder = holder(element);
        if (holder == null) {
            return;
        }
        int position = position(holder);
        Object current = holder.provideField(position);
        if (current instanceof Collection<?> owners) {
            if (!owners.contains(owner.getObject())) {
                ((Collection<Object>) owners).add(owner.getObject());
            }
            return;
        }
        if (current != null && current != owner.getObject()) {
            ((InverseMapping.Owner) holder).requireOneOwner(position, owner.getObject());
        }
        boolean isAssigned = holder.getDirtyFields()[position];
        // All members of a new object are dirty until it was inserted, perhaps for the sake of this container.
        boolean isNew = holder.getLifecycleState().isNew();
        boolean isChosen = current == null ? isAssigned && !isNew : isAssigned || isUnsaved(holder);
        if (current != owner.getObject() && !isChosen) {
            replace(
                    holder,
                    position,
                    isMany(holder, position)
                            ? Containers.build(context, member(holder, position), List.of(owner.getObject()))
                            : owner.getObject());
        }
    }

    /** Whether an element refers to an owner. */
    boolean isSet(DNStateManager owner, Object element) {
        DNStateManager holder = holder(element);
        Object current = holder == null ? null : holder.provideField(position(holder));
        return current != null
                && (current instanceof Collection<?> owners
                        ? owners.contains(owner.getObject())
                        : current == owner.getObject());
    }

    /** Whether an element refers to another owner than this one. */
    public boolean isOfAnother(DNStateManager owner, Object element) {
        DNStateManager holder = holder(element);
        Object current = holder == null ? null : holder.provideField(position(holder));
        return current instanceof Collection<?> owners
                ? !owners.isEmpty() && !owners.contains(owner.getObject())
                : current != null && current != owner.getObject();
    }

    /**
     * Whether an element that is not in a container of an owner any more has no owner, because it was removed from the
     * container. One whose reference the application has ended is also removed from the container, but is not deleted.
     */
    boolean isLeft(DNStateManager owner, AbstractMemberMetaData container, Object element) {
        if (isSet(owner, element)) {
            return true;
        }
        DNStateManager holder = holder(element);
        if (holder == null || holder.provideField(position(holder)) != null) {
            return false;
        }
        return !((InverseMapping.Owner) holder).isAssigned(position(holder))
                || References.of(context).isRemovedByApplication(owner, container, element);
    }

    /** Ends the reference of an element to an owner. */
    public void clear(DNStateManager owner, Object element) {
        DNStateManager holder = holder(element);
        if (holder == null) {
            return;
        }
        int position = position(holder);
        Object current = holder.provideField(position);
        if (current == owner.getObject()) {
            replace(holder, position, null);
        } else if (current instanceof Collection<?> owners && owners.contains(owner.getObject())) {
            owners.remove(owner.getObject());
        } else if (isDeleted(owner) && isMany(holder, position)) {
            // A container that is read while the owner is deleted does not have it, but its record does.
            holder.makeDirty(position);
            flush(holder);
        }
    }

    /** The state of the object that has the member, which is loaded; null if the element is not a stored object. */
    private DNStateManager holder(Object element) {
        DNStateManager holder = context.findStateManager(element);
        if (holder == null || isDeleted(holder)) {
            return null;
        }
        try {
            for (int i = 0; i < path.length - 1; i++) {
                int position = holder.getClassMetaData().getAbsolutePositionOfMember(path[i]);
                holder.loadField(position);
                Object embedded = holder.provideField(position);
                if (embedded == null) {
                    return null;
                }
                holder = context.findStateManagerForEmbedded(
                        embedded, holder, member(holder, position), PersistableObjectType.EMBEDDED_PC);
            }
            int position = position(holder);
            if (position < 0 || member(holder, position).isPrimaryKey()) {
                return null;
            }
            holder.loadField(position);
            return holder;
        } catch (NucleusObjectNotFoundException missing) {
            return null;
        }
    }

    private int position(DNStateManager holder) {
        return holder.getClassMetaData().getAbsolutePositionOfMember(path[path.length - 1]);
    }

    private static AbstractMemberMetaData member(DNStateManager holder, int position) {
        return holder.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position);
    }

    private static boolean isMany(DNStateManager holder, int position) {
        return member(holder, position).hasContainer();
    }

    /** Whether an object is deleted, or is about to be. */
    public static boolean isDeleted(DNStateManager manager) {
        return manager.getLifecycleState().isDeleted() || manager.isDeleting() || manager.becomingDeleted();
    }

    /** Whether an object of a context is deleted. */
    static boolean isDeleted(ExecutionContext context, Object object) {
        DNStateManager manager = object == null ? null : context.findStateManager(object);
        return manager != null && isDeleted(manager);
    }

    /** Whether an object will be inserted later. */
    static boolean isUnsaved(DNStateManager manager) {
        return manager.getLifecycleState().isNew() && !manager.isFlushedNew();
    }

    static void replace(DNStateManager holder, int position, Object value) {
        holder.replaceFieldValue(position, value);
        flush(holder);
    }

    private static void flush(DNStateManager holder) {
        if (!isUnsaved(holder) && !holder.isEmbedded()) {
            holder.flush();
        }
    }
}
