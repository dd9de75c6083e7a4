package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.RecordReader;
import io.mortar.jdo.mapping.RecordWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.identity.IdentityUtils;
import org.datanucleus.management.ManagerStatistics;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.state.LockManager;
import org.datanucleus.state.LockMode;
import org.datanucleus.store.AbstractPersistenceHandler;
import org.datanucleus.store.StoreManager;

/** Stores, reads and deletes objects. What it writes, the session sends together. */
final class MortarPersistenceHandler extends AbstractPersistenceHandler {
    private final MortarStoreManager store;

    MortarPersistenceHandler(StoreManager store) {
        super(store);
        this.store = (MortarStoreManager) store;
    }

    @Override
    public void close() {
        // The store manager closes the client.
    }

    // ------------------------------------------------------------------------------------------- writing

    @Override
    public void insertObject(DNStateManager manager) {
        assertReadOnlyForUpdateOfObject(manager);
        ClassMapping mapping = mapping(manager);
        if (!mapping.hasObjects()) {
            throw new NucleusUserException(
                    "an object of " + mapping + " cannot be stored: the inheritance strategy of the class, "
                            + "subclass-table, permits objects of its subclasses only");
        }
        store.useSession(manager.getExecutionContext(), session -> {
            Oid oid = state(manager).oid(session);
            Record.Builder builder = Record.builder();
            AuditMembers.ofNew(manager);
            manager.provideFields(
                    mapping.members().positions(), RecordWriter.of(manager, mapping.members(), builder, null));
            Versions.advance(manager, mapping, null, builder);
            mapping.visibility().initialize(manager.getExecutionContext(), builder);
            Record record = builder.build();
            session.create(oid, record);
            session.noteCreated(manager.getInternalObjectId());
            store.identities().remember(session, state(manager), oid);
            remember(session, manager, mapping, record);
            RelatedContainers.ownersChanged(
                    store, manager, mapping, mapping.members().positions(), null, record);
        });
        count(manager, ManagerStatistics::incrementInsertCount);
    }

    @Override
    public void updateObject(DNStateManager manager, int[] positions) {
        assertReadOnlyForUpdateOfObject(manager);
        ClassMapping mapping = mapping(manager);
        store.useSession(manager.getExecutionContext(), session -> {
            Record before = current(session, manager, mapping);
            Record.Builder builder = before.toBuilder();
            int[] changed = AuditMembers.ofChanged(manager, positions);
            RecordWriter writer = RecordWriter.of(manager, mapping.members(), builder, before);
            manager.provideFields(changeable(mapping, changed), writer);
            // An object that became persistent meanwhile may have changed the other side of a relation, which is in
            // this object.
            manager.provideFields(changeable(mapping, changedSince(manager, changed)), writer);
            Versions.advance(manager, mapping, manager.getTransactionalVersion(), builder);
            Record record = builder.build();
            state(manager).rememberBefore(before);
            state(manager).forgetChanges();
            // The other side of a relation may be all that has changed.
            if (!record.equals(before)) {
                session.rememberChanged(state(manager).oid(session), manager, before);
                session.replace(state(manager).oid(session), record);
            }
            remember(session, manager, mapping, record);
            RelatedContainers.ownersChanged(
                    store, manager, mapping, mapping.members().positions(), before, record);
        });
        count(manager, ManagerStatistics::incrementUpdateCount);
    }

    /** The members that have become dirty while others were written. */
    private static int[] changedSince(DNStateManager manager, int[] written) {
        boolean[] dirty = manager.getDirtyFields().clone();
        Arrays.stream(written).forEach(position -> dirty[position] = false);
        return IntStream.range(0, dirty.length)
                .filter(position -> dirty[position])
                .toArray();
    }

    /** Notes what was written. The commit gives new blobs other identifiers. */
    private static void remember(StoreSession session, DNStateManager manager, ClassMapping mapping, Record record) {
        state(manager).remember(session, record);
        mapping.members().forEachColumn(column -> {
            if (column.isContent() && record.get(column.number()) instanceof Oid blob && blob.isTemporary()) {
                session.afterCommit(real -> state(manager).replaceReference(column.number(), blob, real.apply(blob)));
            }
        });
    }

    /**
     * The stored members that a change may replace. Those of the primary key stay, also if DataNucleus ends the
     * reference of an object to the owner of a container that is a part of its key.
     */
    private static int[] changeable(ClassMapping mapping, int[] positions) {
        return Arrays.stream(stored(mapping, positions))
                .filter(position -> !mapping.members().at(position).member().isPrimaryKey())
                .toArray();
    }

    private static int[] stored(ClassMapping mapping, int[] positions) {
        return Arrays.stream(positions)
                .filter(position -> mapping.members().at(position) != null)
                .toArray();
    }

    @Override
    public void deleteObject(DNStateManager manager) {
        assertReadOnlyForUpdateOfObject(manager);
        ClassMapping mapping = mapping(manager);
        ExecutionContext context = manager.getExecutionContext();
        store.useSession(context, session -> {
            Record record = current(session, manager, mapping);
            if (mapping.metadata().hasRelations(context.getClassLoaderResolver())) {
                manager.loadUnloadedFields();
                manager.provideFields(
                        mapping.members().positions(), new DeletionCascade(store, manager, session.isCascading()));
            }
            session.rememberChanged(state(manager).oid(session), manager, record);
            delete(session, state(manager).oid(session), mapping, record);
            state(manager).rememberBefore(record);
            state(manager).forgetDeleted();
        });
        count(manager, ManagerStatistics::incrementDeleteCount);
    }

    /** Deletes a stored object with its blobs. */
    static void delete(StoreSession session, Oid oid, ClassMapping mapping, Record record) {
        if (mapping.visibility().keepsDeleted()) {
            Record.Builder deleted = record.toBuilder();
            mapping.visibility().markDeleted(deleted);
            session.replace(oid, deleted.build());
            return;
        }
        mapping.members().forEachColumn(column -> {
            if (column.isContent() && record.get(column.number()) instanceof Oid blob) {
                session.delete(blob);
            }
        });
        session.delete(oid);
    }

    /** The record of an object that is going to be changed. Its version is that of the object. */
    private static Record current(StoreSession session, DNStateManager manager, ClassMapping mapping) {
        Record known = session.isLocking() ? null : state(manager).record(session);
        Record record = known != null ? known : session.get(oidToChange(session, manager), true);
        if (record == null) {
            throw new NucleusOptimisticException(
                    "the object " + name(manager) + " has been deleted", manager.getObject());
        }
        Record basis = state(manager).basis();
        if (basis != null && !basis.equals(record)) {
            throw new NucleusOptimisticException(
                    "the object " + name(manager) + " has changed since it was read", manager.getObject());
        }
        mapping.visibility().requireWritable(manager.getExecutionContext(), record);
        Versions.check(manager, mapping, record);
        return record;
    }

    private static Oid oidToChange(StoreSession session, DNStateManager manager) {
        try {
            return state(manager).oid(session);
        } catch (NucleusObjectNotFoundException missing) {
            throw new NucleusOptimisticException(
                    "the object " + name(manager) + " has been deleted", manager.getObject());
        }
    }

    /** Reads the objects that a flush is going to change, with one call for all. */
    void readForUpdate(ExecutionContext context, List<DNStateManager> managers) {
        store.useSession(context, session -> readAll(session, managers, true));
    }

    private static void count(DNStateManager manager, Consumer<ManagerStatistics> increment) {
        ManagerStatistics statistics = manager.getExecutionContext().getStatistics();
        if (statistics != null) {
            increment.accept(statistics);
        }
    }

    // ------------------------------------------------------------------------------------------- reading

    @Override
    public void fetchObject(DNStateManager manager, int[] positions) {
        ClassMapping mapping = mapping(manager);
        store.useSession(manager.getExecutionContext(), session -> {
            Record record = read(session, manager);
            load(manager, mapping, record, positions);
        });
        FetchGraph.load(manager, positions, manager.getExecutionContext().getFetchPlan());
    }

    @Override
    public void fetchObjects(int[] positions, DNStateManager... managers) {
        readAll(managers[0].getExecutionContext(), managers);
        super.fetchObjects(positions, managers);
    }

    private static void load(DNStateManager manager, ClassMapping mapping, Record record, int[] positions) {
        // The members of the primary key that the object has from its identity are equal.
        int[] stored = Arrays.stream(stored(mapping, positions))
                .filter(position ->
                        !mapping.members().at(position).member().isPrimaryKey() || !manager.isFieldLoaded(position))
                .toArray();
        manager.replaceFields(
                stored, RecordReader.of(manager.getExecutionContext(), manager, mapping.members(), record));
        for (int position : positions) {
            if (mapping.members().at(position) == null) {
                manager.replaceField(position, manager.provideField(position));
            }
        }
        if (manager.getTransactionalVersion() == null) {
            Versions.load(manager, mapping, record);
        }
        count(manager, ManagerStatistics::incrementFetchCount);
    }

    @Override
    public void locateObject(DNStateManager manager) {
        store.useSession(manager.getExecutionContext(), session -> read(session, manager));
    }

    @Override
    public void locateObjects(DNStateManager[] managers) {
        if (managers.length > 1) {
            readAll(managers[0].getExecutionContext(), managers);
        }
        super.locateObjects(managers);
    }

    private void readAll(ExecutionContext context, DNStateManager[] managers) {
        List<DNStateManager> unlocked =
                Arrays.stream(managers).filter(manager -> !isLocked(manager)).toList();
        store.useSession(context, session -> readAll(session, unlocked, false));
    }

    /** Reads the records that the transaction has not read, with one call. */
    private static void readAll(StoreSession session, List<DNStateManager> managers, boolean forUpdate) {
        List<MortarStateManager> unread = managers.stream()
                .map(MortarPersistenceHandler::state)
                .filter(state -> state.record(session) == null && state.knownOid() != null)
                .toList();
        if (unread.size() < 2) {
            return;
        }
        List<Record> records =
                session.getAll(unread.stream().map(MortarStateManager::knownOid).toList(), forUpdate);
        for (int i = 0; i < records.size(); i++) {
            if (records.get(i) != null) {
                unread.get(i).rememberRead(session, records.get(i));
            }
        }
    }

    /** Reads the record of an object, unless the transaction has read it. */
    private static Record read(StoreSession session, DNStateManager manager) {
        boolean forUpdate = isLocked(manager);
        if (forUpdate && !session.isLocking()) {
            beginLocks(session, manager.getExecutionContext(), state(manager).oid(session));
        }
        Record known = forUpdate && session.isLocking() ? null : state(manager).record(session);
        Record record = known != null ? known : stored(session, manager, forUpdate);
        if (record == null) {
            throw new NucleusObjectNotFoundException(
                    "there is no object with the identity " + name(manager), manager.getInternalObjectId());
        }
        Record basis = state(manager).basis();
        if (forUpdate && session.isLocking() && basis != null && !basis.equals(record)) {
            if (hasLoadedMembers(manager)) {
                throw new NucleusOptimisticException(
                        "the object " + name(manager) + " has changed since it was read: refresh it with the lock",
                        manager.getObject());
            }
            state(manager).forgetRecord();
        }
        state(manager).rememberRead(session, record);
        noteLockMode(manager);
        if (state(manager).isRefreshing()) {
            session.setOutdated(manager, false);
        }
        return record;
    }

    /**
     * Gives an object the lock mode that {@code find} has been called with. DataNucleus notes it for the identity only,
     * so that neither {@code getLockMode} nor the increment of the version at the commit knows it.
     */
    private static void noteLockMode(DNStateManager manager) {
        LockManager locks = manager.getExecutionContext().getLockManager();
        LockMode wanted = locks.getLockMode(manager.getInternalObjectId());
        if (wanted != LockMode.LOCK_NONE && locks.getLockMode(manager) != wanted) {
            locks.lock(manager, wanted);
        }
    }

    /** Whether members were read that are not known from the identity. */
    private static boolean hasLoadedMembers(DNStateManager manager) {
        return Arrays.stream(manager.getClassMetaData().getNonPKMemberPositions())
                .anyMatch(manager::isFieldLoaded);
    }

    /**
     * The stored record of an object. A refresh of one that has changed since it was read needs another transaction of
     * Mortar.
     */
    private static Record stored(StoreSession session, DNStateManager manager, boolean forUpdate) {
        Oid oid = state(manager).oid(session);
        try {
            return session.get(oid, forUpdate);
        } catch (NucleusOptimisticException conflict) {
            List<MortarStateManager> others = readBefore(session, manager);
            Set<Oid> known = others.stream().map(MortarStateManager::knownOid).collect(Collectors.toSet());
            known.add(oid);
            if (!state(manager).isRefreshing() || !session.restart(known)) {
                throw conflict;
            }
            readAgain(session, others);
            return session.get(oid, forUpdate);
        }
    }

    /**
     * Makes the transaction of a context one with locks, if it is optimistic. What it has read before is read again.
     *
     * @param next an object that will be read next; null if there is none
     */
    static void beginLocks(StoreSession session, ExecutionContext context, Oid next) {
        List<MortarStateManager> others = new ArrayList<>(readBefore(session, context));
        Set<Oid> known = others.stream().map(MortarStateManager::knownOid).collect(Collectors.toSet());
        known.add(next);
        others.removeIf(each -> each.knownOid().equals(next));
        boolean isLocking = session.isLocking();
        session.beginLocks(known);
        if (!isLocking && !others.isEmpty()) {
            readAgain(session, others);
        }
    }

    private static List<MortarStateManager> readBefore(StoreSession session, DNStateManager refreshed) {
        List<MortarStateManager> others = readBefore(session, refreshed.getExecutionContext());
        others.remove(refreshed);
        return others;
    }

    /** The objects that a context has, and that its transaction has read. */
    private static List<MortarStateManager> readBefore(StoreSession session, ExecutionContext context) {
        List<MortarStateManager> managers = new ArrayList<>();
        for (Object each : context.getLevel1Cache().values()) {
            if (each instanceof MortarStateManager manager && manager.isReadIn(session.epoch())) {
                managers.add(manager);
            }
        }
        return managers;
    }

    /** Reads objects again that the context has read in a former transaction of Mortar. */
    private static void readAgain(StoreSession session, List<MortarStateManager> managers) {
        List<Record> records = session.getAll(
                managers.stream().map(MortarStateManager::knownOid).toList(), false);
        for (int i = 0; i < records.size(); i++) {
            MortarStateManager manager = managers.get(i);
            boolean isSame = manager.basis().equals(records.get(i));
            session.setOutdated(manager, !isSame);
            if (isSame) {
                manager.remember(session, records.get(i));
            }
        }
    }

    /** Whether the application wants to lock an object when it is read. */
    private static boolean isLocked(DNStateManager manager) {
        ExecutionContext context = manager.getExecutionContext();
        LockMode ofObject = context.getLockManager().getLockMode(manager);
        LockMode mode = ofObject != LockMode.LOCK_NONE
                ? ofObject
                : context.getLockManager().getLockMode(manager.getInternalObjectId());
        return mode == LockMode.LOCK_PESSIMISTIC_READ
                || mode == LockMode.LOCK_PESSIMISTIC_WRITE
                || context.getTransaction().isActive()
                        && context.getSerializeReadForClass(
                                manager.getClassMetaData().getFullClassName());
    }

    @Override
    public Object findObject(ExecutionContext context, Object id) {
        return null;
    }

    private ClassMapping mapping(DNStateManager manager) {
        return store.mapping(manager.getClassMetaData());
    }

    private static MortarStateManager state(DNStateManager manager) {
        return (MortarStateManager) manager;
    }

    private static String name(DNStateManager manager) {
        return IdentityUtils.getPersistableIdentityForId(manager.getInternalObjectId());
    }
}
