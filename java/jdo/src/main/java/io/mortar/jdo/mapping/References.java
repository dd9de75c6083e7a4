package io.mortar.jdo.mapping;

import io.mortar.Oid;
import io.mortar.jdo.LargeObject;
import java.util.List;
import org.datanucleus.ExecutionContext;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/** Converts between the objects of a persistence context and their identifiers. */
public interface References {
    /** A store manager that has the references of each context. */
    interface Source {
        References references(ExecutionContext context);
    }

    static References of(ExecutionContext context) {
        return ((Source) context.getStoreManager()).references(context);
    }

    /** The object with an identifier, without its fields; null for null, and if there is no such object. */
    Object object(Oid oid);

    /**
     * The objects with these identifiers in their order, with one read for all; null for null, and for a missing
     * object.
     */
    List<Object> objects(List<Oid> oids);

    /** The identifier of an object that a member refers to. The object becomes persistent if the member says so. */
    Oid persist(Object value, AbstractMemberMetaData member);

    /** The same, as an object of the context: the attached copy of a detached object, otherwise the object itself. */
    Object persistent(Object value, AbstractMemberMetaData member);

    /**
     * An object that the transaction has deleted, and the application has added to a container since then. It is stored
     * again, or refused if the API does not permit that.
     */
    Object restored(Object deleted, AbstractMemberMetaData member);

    /** The identifier of a persistent object. */
    Oid identifier(Object persistent);

    /** The large object in a blob; null for null. */
    LargeObject content(Oid blob);

    /**
     * Stores a large object of a member.
     *
     * @param before the blob that the member refers to in the store, or null
     * @return the blob, which is the same if the large object is in it
     */
    Oid store(LargeObject content, Oid before);

    /**
     * Notes that an object was removed from a container whose objects are deleted when they are removed. It is deleted
     * after the flush unless it is in a container then.
     *
     * @param ownerMember the member of the object that refers to the owner, or null
     */
    void removed(DNStateManager owner, AbstractMemberMetaData container, OwnerMember ownerMember, Object object);

    /** Notes that a container of objects is written. */
    void written(DNStateManager owner, AbstractMemberMetaData container);

    /** Whether the application itself has removed an object from a container since the last flush. */
    boolean isRemovedByApplication(DNStateManager owner, AbstractMemberMetaData container, Object object);

    /** Deletes a blob. */
    void deleteContent(Oid blob);

    /** The objects of the element class of an inverse relation that refer to an owner, in the order of the relation. */
    List<Object> referrers(Oid owner, InverseMapping relation);
}
