package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.OwnerMember;
import io.mortar.jdo.mapping.StoreSchema;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.FetchPlan;
import org.datanucleus.PropertyNames;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.identity.DatastoreId;
import org.datanucleus.identity.IdentityUtils;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.IdentityType;
import org.datanucleus.metadata.PropertyMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.state.CallbackHandler;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.state.LifeCycleState;
import org.datanucleus.state.RelationshipManager;
import org.datanucleus.state.StateManagerImpl;
import org.datanucleus.store.FieldValues;
import org.datanucleus.store.fieldmanager.DeleteFieldManager;
import org.datanucleus.store.fieldmanager.FieldManager;
import org.datanucleus.store.fieldmanager.ReachabilityFieldManager;
import org.datanucleus.store.types.SCOContainer;
import org.datanucleus.transaction.Transaction;
import org.datanucleus.util.ClassUtils;

/**
 * The state of a persistent object, with its identifier in Mortar and the record that its transaction has read or
 * written.
 */
public final class MortarStateManager extends StateManagerImpl implements InverseMapping.Owner {
    private Oid oid;
    private Record record;
    /** The session in whose current transaction the record is current. */
    private long recordEpoch;
    /**
     * The record before the current transaction of the context has written the object; null if it has not. A rollback
     * returns to it.
     */
    private Record recordBefore;
    /** Whether the transaction has deleted the object in the store. */
    private boolean isDeletedInStore;

    private boolean isRefreshing;
    /** What the inverse containers of the object contained when they were read or written; null if there are none. */
    private Map<InverseMapping, List<Object>> inverseElements;
    /** The members that the application has assigned in this transaction. */
    private final BitSet assigned = new BitSet();
    /** The containers that have changed with the other side of their relation since the object was written. */
    private final BitSet changedByRelation = new BitSet();
    /** The deleted objects that the transaction has left out of containers; null if it has written none. */
    private Map<AbstractMemberMetaData, Set<Object>> leftOut;
    /** The references that flushes have changed because a container of their owner has this object; null for none. */
    private Map<Integer, Given> given;

    /**
     * When a reference was changed because of a container.
     *
     * @param flush the number of the flush
     * @param unmanaged the changes of this object whose other sides were still to be changed, if those of the owner
     *     were; or null. DataNucleus replaces it when it has changed the other sides.
     */
    private record Given(long flush, RelationshipManager unmanaged) {}

    public MortarStateManager(ExecutionContext context, AbstractClassMetaData metadata) {
        super(context, metadata);
    }

    /** The identifier of the object. It is assigned now if the object is new. */
    Oid oid(StoreSession session) {
        Oid known = knownOid();
        if (known == null) {
            MortarStoreManager store = (MortarStoreManager) getStoreManager();
            // A transient object whose fields are transactional is not new yet when it is inserted.
            boolean isStored = !isInserting() && (!getLifecycleState().isNew() || isFlushedNew());
            known = isStored
                    ? store.identities().require(session, this)
                    : session.allocate(store.mapping(cmd).number());
            oid = known;
        }
        return known;
    }

    /** The identifier if it is known without a read. */
    Oid knownOid() {
        if (oid == null
                && cmd != null
                && cmd.getIdentityType() == IdentityType.DATASTORE
                && myID instanceof DatastoreId id) {
            oid = ((MortarStoreManager) getStoreManager()).identities().oid(id, cmd);
        }
        return oid;
    }

    void setOid(Oid known) {
        oid = known;
    }

    /** The record of the object in the session's transaction if it has been read or written in it. */
    Record record(StoreSession session) {
        return record != null && recordEpoch == session.epoch() ? record : null;
    }

    /** Whether a transaction of Mortar has read the object. */
    boolean isReadIn(long epoch) {
        return record != null && recordEpoch == epoch && knownOid() != null;
    }

    /** Notes what the transaction has written. */
    void remember(StoreSession session, Record current) {
        isDeletedInStore = false;
        record = current;
        recordEpoch = session.epoch();
    }

    /** Notes that the transaction is going to change or delete the object, which has a record now. */
    void rememberBefore(Record before) {
        if (recordBefore == null && myEC.getTransaction().isActive()) {
            recordBefore = before;
        }
    }

    /**
     * Notes what was read. It does not replace what the transaction has read or written before, which a row of a query
     * may be older than. Nor does it replace another record that members were read from by an earlier transaction: then
     * the object has changed, and writing it is a conflict.
     */
    void rememberRead(StoreSession session, Record read) {
        if (record == null || record(session) == null && record.equals(read)) {
            remember(session, read);
        }
    }

    /** Notes the permanent identifier of an object that the record refers to; null if it is not known. */
    void replaceReference(int field, Oid temporary, Oid permanent) {
        if (record != null && temporary.equals(record.get(field))) {
            record = permanent == null
                    ? null
                    : record.toBuilder().set(field, permanent).build();
        }
    }

    /**
     * The record that the object's members were read from, perhaps by an earlier transaction; null if they were not
     * read.
     */
    Record basis() {
        return record;
    }

    void forgetRecord() {
        record = null;
        recordBefore = null;
    }

    /** Notes that the transaction has deleted the object. */
    void forgetDeleted() {
        record = null;
        isDeletedInStore = true;
    }

    /**
     * What a transaction that is rolled back has written is not what the object's members are based on. Members that
     * are restored are based on the record before.
     */
    @Override
    public void preRollback(Transaction transaction) {
        isDeletedInStore = false;
        inverseElements = null;
        assigned.clear();
        changedByRelation.clear();
        leftOut = null;
        if (recordBefore != null) {
            record = recordBefore;
            recordBefore = null;
        }
        super.preRollback(transaction);
    }

    @Override
    public void postCommit(Transaction transaction) {
        isDeletedInStore = false;
        recordBefore = null;
        assigned.clear();
        changedByRelation.clear();
        leftOut = null;
        super.postCommit(transaction);
    }

    /** DataNucleus leaves an object as it is whose change outside of transactions was refused, or is not stored yet. */
    @Override
    public void refresh() {
        if (myLC.stateType() == LifeCycleState.P_NONTRANS_DIRTY) {
            clearDirtyFlags();
            myEC.clearDirty(this);
            myLC = myEC.getApiAdapter().getLifeCycleState(LifeCycleState.P_NONTRANS);
        }
        super.refresh();
    }

    /** Members are read again, so what they were read from before does not matter. */
    @Override
    public void refreshFieldsInFetchPlan() {
        refreshing(super::refreshFieldsInFetchPlan);
    }

    @Override
    public void refreshLoadedFields() {
        refreshing(super::refreshLoadedFields);
    }

    /** The members of an embedded object are read with its owner. */
    private void refreshing(Runnable step) {
        if (isEmbedded()) {
            return;
        }
        forgetRecord();
        isRefreshing = true;
        try {
            step.run();
        } finally {
            isRefreshing = false;
        }
    }

    /** Whether the application wants the members to be read again. */
    boolean isRefreshing() {
        return isRefreshing;
    }

    @Override
    public List<Object> elementsOf(InverseMapping container) {
        return inverseElements == null ? null : inverseElements.get(container);
    }

    @Override
    public void rememberElements(InverseMapping container, List<Object> elements) {
        if (inverseElements == null) {
            inverseElements = new HashMap<>();
        }
        inverseElements.put(container, elements);
    }

    @Override
    public Set<Object> leftOut(AbstractMemberMetaData container) {
        leftOut = leftOut == null ? new HashMap<>() : leftOut;
        return leftOut.computeIfAbsent(container, each -> new HashSet<>());
    }

    /** A container of the object changes. */
    @Override
    public void makeDirty(int position) {
        if (myEC.isManagingRelations() || myEC.isFlushing()) {
            changedByRelation.set(position);
        }
        super.makeDirty(position);
    }

    boolean isChangedByRelation(int position) {
        return changedByRelation.get(position);
    }

    /** Notes that the members of the object have been written. */
    void forgetChanges() {
        changedByRelation.clear();
    }

    @Override
    public boolean isAssigned(int position) {
        return assigned.get(position);
    }

    /** The application assigns an object or a container to a member. */
    @Override
    public void setObjectField(Persistable object, int position, Object before, Object value) {
        if (object == myPC && myLC != null) {
            assigned.set(position);
        }
        super.setObjectField(object, position, current(object, position, before), value);
    }

    // ------------------------------------------------------------------------------------------- assignments

    /**
     * The value that a member has before an assignment. DataNucleus loads an object that has a version now, and then
     * compares the new value with what the member had before it was loaded, which is null or zero.
     */
    private <T> T current(Persistable object, int position, T given) {
        boolean isLoadedNow = object == myPC
                && myLC != null
                && !loadedFields[position]
                && isVersioned()
                && transactionalVersion == null;
        if (!isLoadedNow) {
            return given;
        }
        loadUnloadedFieldsInFetchPlanAndVersion();
        return loadedFields[position] ? (T) provideField(position) : given;
    }

    @Override
    public void setBooleanField(Persistable object, int position, boolean before, boolean value) {
        super.setBooleanField(object, position, current(object, position, before), value);
    }

    @Override
    public void setByteField(Persistable object, int position, byte before, byte value) {
        super.setByteField(object, position, current(object, position, before), value);
    }

    @Override
    public void setCharField(Persistable object, int position, char before, char value) {
        super.setCharField(object, position, current(object, position, before), value);
    }

    @Override
    public void setDoubleField(Persistable object, int position, double before, double value) {
        super.setDoubleField(object, position, current(object, position, before), value);
    }

    @Override
    public void setFloatField(Persistable object, int position, float before, float value) {
        super.setFloatField(object, position, current(object, position, before), value);
    }

    @Override
    public void setIntField(Persistable object, int position, int before, int value) {
        super.setIntField(object, position, current(object, position, before), value);
    }

    @Override
    public void setLongField(Persistable object, int position, long before, long value) {
        super.setLongField(object, position, current(object, position, before), value);
    }

    @Override
    public void setShortField(Persistable object, int position, short before, short value) {
        super.setShortField(object, position, current(object, position, before), value);
    }

    @Override
    public void setStringField(Persistable object, int position, String before, String value) {
        super.setStringField(object, position, current(object, position, before), value);
    }

    // ------------------------------------------------------------------------------------------- the end of its use

    @Override
    public void clearNonPrimaryKeyFields() {
        super.clearNonPrimaryKeyFields();
        inverseElements = null;
        assigned.clear();
        changedByRelation.clear();
        forgetRecord();
    }

    /** A transient object has no datastore identity: the store would give it to another object, too. */
    @Override
    public void initialiseForTransactionalTransient(Persistable object) {
        super.initialiseForTransactionalTransient(object);
        if (cmd.getIdentityType() != IdentityType.DATASTORE) {
            return;
        }
        myEC.evictFromTransaction(this);
        myID = null;
        myInternalID = null;
        oid = null;
        if (myEC.getTransaction().isActive()) {
            myEC.enlistInTransaction(this);
        }
    }

    @Override
    public void initialiseForPersistentNew(Persistable object, FieldValues changes) {
        if (!DerivedKeys.has(cmd)) {
            super.initialiseForPersistentNew(object, changes);
            return;
        }
        FieldValues derived = new FieldValues() {
            @Override
            public void fetchFields(DNStateManager manager) {
                if (changes != null) {
                    changes.fetchFields(manager);
                }
                DerivedKeys.assign(manager);
            }

            @Override
            public void fetchNonLoadedFields(DNStateManager manager) {
                throw new UnsupportedOperationException("a new object has all of its members");
            }

            @Override
            public FetchPlan getFetchPlanForLoading() {
                return changes == null ? null : changes.getFetchPlanForLoading();
            }
        };
        super.initialiseForPersistentNew(object, derived);
    }

    @Override
    public void makePersistent() {
        if (isEmbedded()) {
            super.makePersistent();
            return;
        }
        boolean returns = myLC.isDeleted() && myEC.getApiAdapter().allowPersistOfDeletedObject();
        inTraversal(super::makePersistent);
        // DataNucleus has stored it, and leaves it deleted; or it will not store it, though the store has deleted it.
        boolean isMisjudged = myLC.isDeleted() || isDeletedInStore && myLC.stateType() == LifeCycleState.P_CLEAN;
        if (returns && isMisjudged) {
            myLC = myEC.getApiAdapter().getLifeCycleState(LifeCycleState.P_NEW);
        }
    }

    /**
     * DataNucleus takes a removed entity that is persisted again for one to be changed, even if nothing has changed: it
     * was not deleted yet.
     */
    @Override
    public void flush() {
        if (dirty
                && !isEmbedded()
                && myLC.stateType() == LifeCycleState.P_CLEAN
                && ClassUtils.getFlagsSetTo(dirtyFields, true) == null) {
            dirty = false;
            return;
        }
        super.flush();
    }

    @Override
    public void deletePersistent() {
        if (cmd.getIdentityType() == IdentityType.APPLICATION
                && myEC.getTransaction().isActive()) {
            Object identity = getInternalObjectId();
            ((MortarStoreManager) getStoreManager()).useSession(myEC, session -> session.noteDeleted(identity));
        }
        inTraversal(super::deletePersistent);
    }

    @Override
    protected CallbackHandler getCallbackHandler() {
        CallbackHandler callbacks = super.getCallbackHandler();
        boolean isFlushOfDeletion = isFlushing() && myLC != null && myLC.isDeleted();
        return isFlushOfDeletion ? new DeletionCallbacks(callbacks) : callbacks;
    }

    @Override
    public void provideFields(int[] positions, FieldManager fields) {
        boolean isRemoval = fields.getClass() == DeleteFieldManager.class && becomingDeleted() && !isFlushing();
        if (isRemoval && StoreSchema.isJakarta(myEC.getNucleusContext()) && isCascading()) {
            super.provideFields(positions, new RemovalCascade(this));
        }
        if (fields instanceof ReachabilityFieldManager) {
            Traversal.run(myEC, () -> super.provideFields(positions, fields));
        } else {
            super.provideFields(positions, fields);
        }
    }

    /** Whether deletions cascade: those of a bulk delete do not. */
    private boolean isCascading() {
        return ((MortarStoreManager) getStoreManager()).withSession(myEC, StoreSession::isCascading);
    }

    /**
     * The setter of a property may read a container, so it does not get one that is not complete yet, as an assignment
     * gives it. A flush replaces the container by one that notices changes.
     */
    @Override
    public void replaceField(int position, Object value) {
        boolean isProperty = cmd.getMetaDataForManagedMemberAtAbsolutePosition(position) instanceof PropertyMetaData;
        if (!isProperty || !(value instanceof SCOContainer<?> container) || container.getValue() != null) {
            super.replaceField(position, value);
        }
    }

    /** The former owner of an object that gets another one does not have it any more, alone or in a container. */
    @Override
    public void replaceFieldValue(int position, Object value) {
        AbstractMemberMetaData member = cmd.getMetaDataForManagedMemberAtAbsolutePosition(position);
        RelationType relation = member.getRelationType(myEC.getClassLoaderResolver());
        boolean refersToOwner = relation == RelationType.MANY_TO_ONE_BI || relation == RelationType.ONE_TO_ONE_BI;
        Object before = refersToOwner && isFieldLoaded(position) ? provideField(position) : null;
        if (relation == RelationType.MANY_TO_ONE_BI && value != null && myEC.isManagingRelations()) {
            if (Boolean.FALSE.equals(containedIn(value, position))) {
                // It was added to the container of this owner, and removed again.
                return;
            }
            if (before != null && before != value) {
                requireOneOwner(position, value);
            }
        }
        super.replaceFieldValue(position, value);
        if (relation == RelationType.MANY_TO_ONE_BI) {
            noteGiven(position, value);
        }
        if (value != null) {
            assigned.clear(position);
        }
        if (before == null || before == value) {
            return;
        }
        AbstractMemberMetaData related =
                member.getRelatedMemberMetaDataForObject(myEC.getClassLoaderResolver(), myPC, before);
        if (related != null && relation == RelationType.MANY_TO_ONE_BI) {
            RelatedContainers.remove((MortarStoreManager) getStoreManager(), this, before, related);
        } else if (related != null && related.getMappedBy() != null) {
            forget(myEC.findStateManager(before), related.getAbsoluteFieldNumber());
        }
    }

    private void noteGiven(int position, Object owner) {
        if (owner != null && (myEC.isManagingRelations() || myEC.isFlushing())) {
            given = given == null ? new HashMap<>() : given;
            given.put(position, new Given(flushNumber(), unmanaged(position, owner)));
        } else if (given != null) {
            given.remove(position);
        }
    }

    private RelationshipManager unmanaged(int position, Object owner) {
        AbstractMemberMetaData container = containerOf(owner, position);
        DNStateManager manager = myEC.findStateManager(owner);
        boolean isUnmanaged = myEC.getManageRelations()
                && container != null
                && manager != null
                && myEC.getRelationshipManager(manager).managesField(container.getAbsoluteFieldNumber());
        return isUnmanaged ? myEC.getRelationshipManager(this) : null;
    }

    /** Whether both sides of relations are compared when the application flushes, and when it commits. */
    static boolean checksRelations(ExecutionContext context) {
        return context.getManageRelations()
                && Boolean.TRUE.equals(context.getBooleanProperty(PropertyNames.PROPERTY_MANAGE_RELATIONSHIPS_CHECKS));
    }

    private long flushNumber() {
        return ((MortarStoreManager) getStoreManager()).withSession(myEC, StoreSession::flushNumber);
    }

    @Override
    public void requireOneOwner(int position, Object other) {
        Given last = given == null || !checksRelations(myEC) ? null : given.get(position);
        boolean isOfThisFlush =
                last != null && (last.flush == flushNumber() || last.unmanaged == myEC.getRelationshipManager(this));
        if (!isOfThisFlush) {
            return;
        }
        Object owner = provideField(position);
        if (Boolean.TRUE.equals(containedIn(owner, position)) && Boolean.TRUE.equals(containedIn(other, position))) {
            AbstractMemberMetaData member = cmd.getMetaDataForManagedMemberAtAbsolutePosition(position);
            throw new NucleusUserException("the object " + name(myPC) + " was added to containers of two objects, "
                    + name(owner) + " and " + name(other) + ", but " + member.getFullFieldName()
                    + " can only refer to one of them");
        }
    }

    private String name(Object persistent) {
        return IdentityUtils.getPersistableIdentityForId(myEC.getApiAdapter().getIdForObject(persistent));
    }

    /** Whether the container of an owner, to whom a member refers, has this object; null if it is not loaded. */
    private Boolean containedIn(Object owner, int position) {
        AbstractMemberMetaData container = containerOf(owner, position);
        return container == null ? null : RelatedContainers.contains(this, owner, container);
    }

    private AbstractMemberMetaData containerOf(Object owner, int position) {
        return cmd.getMetaDataForManagedMemberAtAbsolutePosition(position)
                .getRelatedMemberMetaDataForObject(myEC.getClassLoaderResolver(), myPC, owner);
    }

    /** Ends the reference of another object to this one, which is not stored with that object. */
    private void forget(DNStateManager other, int position) {
        if (other != null
                && !OwnerMember.isDeleted(other)
                && other.isFieldLoaded(position)
                && other.provideField(position) == myPC) {
            other.replaceField(position, null);
        }
    }

    private void inTraversal(Runnable step) {
        if (myEC.getTransaction().isActive()) {
            Traversal.run(myEC, step);
            return;
        }
        // Outside of transactions, all objects of a call are stored together, or none of them.
        ((MortarStoreManager) getStoreManager()).changing(myEC, session -> {
            Traversal.run(myEC, step);
            return null;
        });
    }

    /**
     * An assignment in a datastore transaction is flushed at once, so errors of the store reach the application from
     * here.
     */
    @Override
    protected void postWriteField(boolean wasDirty) {
        withErrorsOfApi(() -> super.postWriteField(wasDirty));
    }

    /**
     * Fields are read when the application uses them, and by {@code find} of Jakarta Persistence, which converts no
     * errors.
     */
    @Override
    protected void loadFieldsFromDatastore(int[] positions) {
        if (myLC == null || myLC.isPersistent()) {
            withErrorsOfApi(() -> super.loadFieldsFromDatastore(positions));
        }
    }

    /** A lock of an entity manager reads the object, and converts no errors. */
    @Override
    public void locate() {
        try {
            withErrorsOfApi(super::locate);
        } catch (NucleusObjectNotFoundException notFound) {
            throw notFound;
        } catch (NucleusUserException refused) {
            throw myEC.getApiAdapter().getApiExceptionForNucleusException(refused);
        }
    }

    private void withErrorsOfApi(Runnable step) {
        try {
            step.run();
        } catch (NucleusOptimisticException | NucleusDataStoreException error) {
            throw myEC.getApiAdapter().getApiExceptionForNucleusException(error);
        }
    }

    @Override
    public void disconnect() {
        oid = null;
        forgetRecord();
        inverseElements = null;
        assigned.clear();
        changedByRelation.clear();
        super.disconnect();
    }
}
