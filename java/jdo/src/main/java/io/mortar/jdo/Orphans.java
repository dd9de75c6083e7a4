package io.mortar.jdo;

import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.OwnerMember;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/**
 * The objects that a transaction has removed from containers whose objects are deleted when they are removed. It
 * deletes them after a flush, unless they are then in a container that the flush has written: in the same one at
 * another place, or in that of another owner.
 */
final class Orphans {
    private final List<Removed> removed = new ArrayList<>();
    private final List<Container> written = new ArrayList<>();
    private int flushes;

    /** An object, and the member by which it refers to its owner; null if it does not. */
    private record Removed(Object object, Container from, OwnerMember ownerMember) {

        boolean hasAnotherOwner() {
            return ownerMember != null && ownerMember.isOfAnother(from.owner(), object);
        }

        /** Ends the reference of the object to the former owner, unless the object has returned to it. */
        void clearOwner() {
            if (ownerMember != null && from.objects().stream().noneMatch(each -> each == object)) {
                ownerMember.clear(from.owner(), object);
            }
        }
    }

    private record Container(DNStateManager owner, AbstractMemberMetaData member) {

        List<Object> objects() {
            Object value = OwnerMember.isDeleted(owner) ? null : owner.provideField(member.getAbsoluteFieldNumber());
            if (value instanceof Map<?, ?> map) {
                List<Object> objects = new ArrayList<>(map.keySet());
                objects.addAll(map.values());
                return objects;
            }
            return value == null
                    ? List.of()
                    : Containers.isContainer(value) ? Containers.elements(value) : List.of(value);
        }
    }

    /** Notes that an object was removed from a container of an owner. */
    void removed(DNStateManager owner, AbstractMemberMetaData member, OwnerMember ownerMember, Object object) {
        removed.add(new Removed(object, new Container(owner, member), ownerMember));
    }

    /** Notes that a container is written. */
    void written(DNStateManager owner, AbstractMemberMetaData member) {
        written.add(new Container(owner, member));
    }

    boolean isFlushing() {
        return flushes > 0;
    }

    /** Runs a flush, which may be a part of another one. */
    <T> T duringFlush(Supplier<T> flush) {
        flushes++;
        try {
            return flush.get();
        } finally {
            flushes--;
        }
    }

    /** Deletes the orphans, unless a flush is going to write other containers. */
    void delete(ExecutionContext context) {
        if (flushes > 0) {
            return;
        }
        while (!removed.isEmpty()) {
            List<Removed> decided = List.copyOf(removed);
            removed.clear();
            Set<Object> contained = contained(decided);
            decided.forEach(each -> delete(context, each, contained.contains(each.object())));
        }
        written.clear();
    }

    /** The objects that are in containers. */
    private Set<Object> contained(Collection<Removed> candidates) {
        Set<Object> wanted = Collections.newSetFromMap(new IdentityHashMap<>());
        candidates.forEach(each -> wanted.add(each.object()));
        Set<Object> contained = Collections.newSetFromMap(new IdentityHashMap<>());
        for (Container container : List.copyOf(written)) {
            container.objects().stream().filter(wanted::contains).forEach(contained::add);
        }
        return contained;
    }

    private static void delete(ExecutionContext context, Removed orphan, boolean isContained) {
        DNStateManager manager = context.findStateManager(orphan.object());
        if (manager == null || OwnerMember.isDeleted(manager)) {
            return;
        }
        if (isContained || orphan.hasAnotherOwner()) {
            orphan.clearOwner();
        } else {
            load(manager);
            context.deleteObjectInternal(orphan.object());
        }
    }

    /** Reads the members of an object that will be deleted: the application may add it to a container once more. */
    private static void load(DNStateManager manager) {
        try {
            manager.loadUnloadedFields();
        } catch (NucleusObjectNotFoundException missing) {
            // The deletion reports that another transaction has deleted the object.
        }
    }

    void clear() {
        removed.clear();
        written.clear();
    }
}
