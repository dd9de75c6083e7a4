package io.mortar.jdo.mapping;

import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.datanucleus.metadata.AbstractMemberMetaData;

/**
 * The objects that were added to a container and removed from it.
 *
 * @param added objects that the container has now and had not
 * @param removed objects that the container had and has not now
 */
record ContainerChange(Set<Object> added, Set<Object> removed) {

    static ContainerChange of(Collection<?> before, Collection<?> after) {
        return new ContainerChange(difference(after, before), difference(before, after));
    }

    private static Set<Object> difference(Collection<?> from, Collection<?> without) {
        Set<Object> difference = Collections.newSetFromMap(new IdentityHashMap<>());
        difference.addAll(from);
        without.forEach(difference::remove);
        return difference;
    }

    /**
     * Changes the references of the objects to their owner. Removed objects that have no owner any more are deleted
     * after the flush, which may give them another one.
     *
     * @param ownerMember the member that refers to the owner, or null
     * @param isDependent whether an object is deleted when it is removed
     */
    void apply(RecordWriter to, AbstractMemberMetaData container, OwnerMember ownerMember, boolean isDependent) {
        for (Object element : removed) {
            if (isDependent && (ownerMember == null || ownerMember.isLeft(to.owner(), container, element))) {
                to.references().removed(to.owner(), container, ownerMember, element);
            } else if (ownerMember != null) {
                ownerMember.clear(to.owner(), element);
            }
        }
        if (ownerMember != null) {
            added.forEach(element -> ownerMember.set(to.owner(), element));
        }
    }
}
