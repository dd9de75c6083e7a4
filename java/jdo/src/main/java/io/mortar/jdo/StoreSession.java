package io.mortar.jdo;

import io.mortar.Change;
import io.mortar.Client;
import io.mortar.CommitOutcome;
import io.mortar.IsolationLevel;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.Rows;
import io.mortar.StagedContent;
import io.mortar.StoredObject;
import io.mortar.Transaction;
import io.mortar.TransactionId;
import io.mortar.UnknownOutcomeException;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.util.NucleusLogger;

/**
 * The reads and writes of a persistence context in Mortar: one transaction of Mortar for each of the context.
 *
 * <p>Writes are kept here and cross to the native library together, before a query, at a flush and at the commit. Reads
 * of the session see them. Outside of transactions of the context, each change is a transaction, with what is read for
 * it, which is committed when the connection is released; other reads are of the nearest copy.
 */
final class StoreSession {
    private static final AtomicLong EPOCHS = new AtomicLong();
    private static final AtomicLong FLUSHES = new AtomicLong();
    private static final int TYPICAL_BYTES = 200;
    /** Bytes of a blob that are stored with the other objects of the transaction. */
    private static final int FEW_BYTES = 64 << 10;
    /** Changed objects that an error of a conflict names at most. */
    private static final int MANY_CHANGED = 10_000;
    /** A transaction that has read more objects is not begun anew: see {@link #restart}. */
    private static final int MAX_READ = 10_000;

    private static final int OUTCOME_ATTEMPTS = 20;
    private static final long OUTCOME_PAUSE_MS = 500;

    private final Client client;
    private final ExecutionContext context;
    private final boolean isImplicit;
    private Transaction transaction;
    /** Whether the context changes objects outside of a transaction: see {@link #beginChange}. */
    private boolean isChanging;

    private boolean hasWrites;
    private boolean hasAllocated;
    private boolean hasQueried;
    /** Whether a lock that the application asked for has made an optimistic transaction one with locks. */
    private boolean isUpgraded;

    private long flush = FLUSHES.incrementAndGet();

    /** Whether objects that depend on a deleted one are deleted, too. */
    private boolean isCascading = true;

    /** The limit of writes of a query; null if the limit is that of the context. */
    private Integer writeLimitMs;

    private long epoch = EPOCHS.incrementAndGet();
    /** What has been written and not been sent; a deleted object has no record. */
    private final Map<Oid, Write> pending = new LinkedHashMap<>();
    /** The objects that the transaction has deleted. */
    private final Set<Oid> deleted = new HashSet<>();
    /** The objects that the transaction has created, by their application identities, and the other way round. */
    private final Map<Object, Oid> created = new HashMap<>();

    private final Map<Oid, Object> identities = new HashMap<>();
    /** The application identities of the objects that the transaction has deleted. */
    private final Set<Object> deletedIdentities = new HashSet<>();
    /** Whether the transaction has created an object with the identity of one that it has deleted. */
    private boolean isIdentityReused;
    /** The objects that the transaction has changed, with the records that it has read of them; not more than some. */
    private final Map<Oid, Basis> changed = new LinkedHashMap<>();
    /** The objects that the transaction has read, up to some more than {@link #MAX_READ}. */
    private final Set<Oid> read = new HashSet<>();

    private final Orphans orphans = new Orphans();

    /** Objects that a former transaction of Mortar has read, and that have changed since. */
    private final Set<DNStateManager> outdated = Collections.newSetFromMap(new IdentityHashMap<>());

    private final List<Consumer<UnaryOperator<Oid>>> afterCommit = new ArrayList<>();

    private record Write(Change change, Record record, boolean isNew) {}

    private record Basis(DNStateManager manager, Record record) {}

    /** @param isImplicit whether the context has no transaction */
    StoreSession(Client client, ExecutionContext context, boolean isImplicit) {
        this.client = client;
        this.context = context;
        this.isImplicit = isImplicit;
    }

    /** A number of the current transaction; no two transactions have the same. */
    long epoch() {
        return epoch;
    }

    /** A number of the flush that is in progress, or that is next; no two flushes have the same. */
    long flushNumber() {
        return flush;
    }

    /** Notes the end of a flush that is not a part of another one. */
    void flushed() {
        flush = FLUSHES.incrementAndGet();
    }

    /** The objects that were removed from containers since the last flush. */
    Orphans orphans() {
        return orphans;
    }

    /** Whether the deletion of an object deletes those that depend on it. */
    boolean isCascading() {
        return isCascading;
    }

    void setCascading(boolean cascading) {
        isCascading = cascading;
    }

    private Transaction transaction() {
        if (transaction == null) {
            transaction = client.begin(level());
        }
        return transaction;
    }

    private IsolationLevel level() {
        if (isImplicit) {
            return IsolationLevel.OPTIMISTIC;
        }
        if (MortarStoreManager.isSnapshot(context)) {
            return IsolationLevel.SNAPSHOT;
        }
        return context.getTransaction().getOptimistic() && !isUpgraded
                ? IsolationLevel.OPTIMISTIC
                : IsolationLevel.LOCKS;
    }

    /** Whether objects must be locked before they are changed. */
    boolean isLocking() {
        return !isImplicit && level() == IsolationLevel.LOCKS;
    }

    private <T> T call(Supplier<T> call) {
        return StoreErrors.translating(context, call);
    }

    /**
     * Begins another transaction of Mortar in place of one that has read what another transaction has changed since, to
     * read that again. One that writes, or locks, cannot be replaced; nor one with queries, whose results may be open,
     * or that has read other objects than the known ones, which the caller reads again.
     *
     * @return whether that was done
     */
    boolean restart(Set<Oid> known) {
        boolean isReplaceable = isReplaceable(known);
        if (isReplaceable) {
            end();
        }
        return isReplaceable;
    }

    private boolean isReplaceable(Set<Oid> known) {
        return !isImplicit
                && level() == IsolationLevel.OPTIMISTIC
                && !hasWrites
                && !hasAllocated
                && !hasQueried
                && read.size() <= MAX_READ
                && known.containsAll(read);
    }

    /**
     * Makes an optimistic transaction one with locks, because the application asks for a lock. Only one that can be
     * begun anew can become that: see {@link #restart}. Objects that it has read must be read again.
     */
    void beginLocks(Set<Oid> known) {
        if (isImplicit || isLocking()) {
            return;
        }
        if (isSnapshot()) {
            throw new NucleusUserException("a transaction of a group snapshot locks no objects");
        }
        if (!isReplaceable(known)) {
            throw new NucleusUserException("an optimistic transaction cannot lock an object after it has "
                    + (hasWrites || hasAllocated
                            ? "created or flushed objects"
                            : hasQueried ? "run a query" : "read objects that are no longer in memory")
                    + ": lock the object first, or use a datastore transaction (the property datanucleus.Optimistic or"
                    + " javax.jdo.option.Optimistic is false)");
        }
        end();
        isUpgraded = true;
    }

    /**
     * Notes that an object has changed since the context has read it, so that the commit is a conflict; or that it was
     * read again.
     */
    void setOutdated(DNStateManager manager, boolean isOutdated) {
        if (isOutdated) {
            outdated.add(manager);
        } else {
            outdated.remove(manager);
        }
    }

    /** The record of an object, or null if there is no such object that the context finds. */
    Record get(Oid oid, boolean forUpdate) {
        return visible(oid, stored(oid, forUpdate));
    }

    private Record visible(Oid oid, Record record) {
        boolean isVisible =
                record != null && ((MortarStoreManager) context.getStoreManager()).isVisible(context, oid, record);
        return isVisible ? record : null;
    }

    private Record stored(Oid oid, boolean forUpdate) {
        Write written = pending.get(oid);
        if (written != null) {
            return written.record();
        }
        return call(() -> {
            if (isImplicit && !isChanging) {
                return reading(oid, () -> client.get(oid).map(StoredObject::record))
                        .orElse(null);
            }
            noteRead(List.of(oid));
            Transaction current = transaction();
            Optional<StoredObject> object =
                    forUpdate ? locked(oid, () -> current.getForUpdate(oid)) : reading(oid, () -> current.get(oid));
            return object.map(StoredObject::record).orElse(null);
        });
    }

    /** Runs a call that may wait for the exclusive lock of an object. */
    private <T> T locked(Oid oid, Supplier<T> call) {
        long limitMs = isLocking() ? TimeLimit.ofLocks(context) : -1;
        if (limitMs >= 0) {
            return limitedOr(() -> StoreErrors.lockTimeout(context, oid, limitMs), limitMs, call);
        }
        // It reads for the sake of a write, unless the application has only asked for the lock.
        long writeMs = writeLimitMs();
        return writeMs < 0 ? reading(oid, call) : limited(writeMs, () -> "the lock of " + describe(oid), call);
    }

    private <T> T reading(Oid oid, Supplier<T> call) {
        return limited(TimeLimit.ofReads(context), () -> "the read of " + describe(oid), call);
    }

    private <T> T limited(long limitMs, Supplier<String> what, Supplier<T> call) {
        return limitedOr(() -> StoreErrors.tooLong(context, what.get(), limitMs), limitMs, call);
    }

    /**
     * Runs a call that may take long, with a limit in milliseconds unless that is negative. A transaction that does not
     * get its answer in time is aborted. Another thread makes the call, perhaps until long after that, so it must not
     * use this session.
     */
    private <T> T limitedOr(Supplier<RuntimeException> tooLong, long limitMs, Supplier<T> call) {
        if (limitMs < 0) {
            return call.get();
        }
        try {
            return TimeLimit.run(call, limitMs);
        } catch (TimeoutException late) {
            RuntimeException error = tooLong.get();
            if (context.getTransaction().isActive()) {
                context.getTransaction().setRollbackOnly();
            }
            end();
            throw error;
        }
    }

    /** Limits the time of writes until the limit is null again, whatever the context says; 0 is for no limit. */
    void limitWrites(Integer milliseconds) {
        writeLimitMs = milliseconds;
    }

    private long writeLimitMs() {
        if (writeLimitMs == null) {
            return TimeLimit.ofWrites(context);
        }
        return writeLimitMs > 0 ? writeLimitMs : -1;
    }

    private String describe(Oid oid) {
        return ((MortarStoreManager) context.getStoreManager()).describe(oid);
    }

    private void noteRead(List<Oid> oids) {
        if (read.size() <= MAX_READ) {
            read.addAll(oids);
        }
    }

    /** The records of objects; null for those that the context does not find. All are read in one call. */
    List<Record> getAll(List<Oid> oids, boolean forUpdate) {
        return getAll(oids, missing -> {
            Transaction current = transaction();
            return forUpdate
                    ? locked(missing.get(0), () -> current.getAllForUpdate(missing))
                    : reading(missing.get(0), () -> current.getAll(missing));
        });
    }

    /**
     * The records of objects, which are locked exclusively within a number of milliseconds, or within the limit of
     * locks.
     */
    List<Record> lockAll(List<Oid> oids, long limitMs, Supplier<RuntimeException> tooLong) {
        return getAll(oids, missing -> {
            Transaction current = transaction();
            Supplier<Map<Oid, StoredObject>> locking = () -> current.getAllForUpdate(missing);
            long ofLocksMs = isLocking() ? TimeLimit.ofLocks(context) : -1;
            return 0 <= ofLocksMs && ofLocksMs < limitMs
                    ? locked(missing.get(0), locking)
                    : limitedOr(tooLong, limitMs, locking);
        });
    }

    private List<Record> getAll(List<Oid> oids, Function<List<Oid>, Map<Oid, StoredObject>> stored) {
        List<Oid> missing =
                oids.stream().filter(oid -> !pending.containsKey(oid)).toList();
        Map<Oid, StoredObject> read = missing.isEmpty() ? Map.of() : call(() -> stored.apply(missing));
        noteRead(missing);
        List<Record> records = new ArrayList<>(oids.size());
        for (Oid oid : oids) {
            Write written = pending.get(oid);
            StoredObject object = read.get(oid);
            records.add(visible(oid, written != null ? written.record() : object == null ? null : object.record()));
        }
        return records;
    }

    /** Fetches objects that will probably be read soon. */
    void prefetch(List<Oid> oids) {
        if (!isImplicit && oids.size() > 1) {
            call(() -> {
                transaction().prefetch(oids);
                return null;
            });
        }
    }

    /** The identifier of an object of a class that this transaction will create. */
    Oid allocate(int classNumber) {
        hasAllocated = true;
        return call(() -> transaction().allocate(classNumber, TYPICAL_BYTES));
    }

    /** Creates an object. One that the transaction has deleted before is stored again. */
    void create(Oid oid, Record record) {
        StoredObject object = StoredObject.record(record);
        if (deleted.remove(oid)) {
            write(oid, Change.replace(oid, object), record, false);
        } else {
            write(oid, Change.create(oid, object), record, true);
        }
    }

    /**
     * Creates a blob. Bytes that are not few are uploaded, in bounded memory.
     *
     * @return a temporary identifier, which the commit replaces in records; see {@link #afterCommit}
     */
    Oid createBlob(InputStream bytes) throws IOException {
        hasWrites = true;
        byte[] first = bytes.readNBytes(FEW_BYTES + 1);
        if (first.length <= FEW_BYTES) {
            return call(() -> transaction().createBlob(first));
        }
        StagedContent content = client.upload(new SequenceInputStream(new ByteArrayInputStream(first), bytes));
        return call(() -> transaction().createBlob(content));
    }

    /**
     * Runs an action after the commit, with the permanent identifiers of new blobs; null if such a one is not known.
     */
    void afterCommit(Consumer<UnaryOperator<Oid>> action) {
        afterCommit.add(action);
    }

    /**
     * Notes the application identity of an object that the transaction creates. The store compares it with those of
     * stored objects, at the commit.
     *
     * @return whether no other object that the transaction has created has it
     */
    boolean claim(Object identity, Oid oid) {
        Oid other = created.putIfAbsent(identity, oid);
        identities.put(oid, identity);
        return other == null || other.equals(oid);
    }

    /** Notes the identity of an object that the transaction deletes. */
    void noteDeleted(Object identity) {
        deletedIdentities.add(identity);
    }

    /** Notes the identity of an object that the transaction creates. */
    void noteCreated(Object identity) {
        isIdentityReused |= deletedIdentities.contains(identity);
    }

    boolean isIdentityReused() {
        return isIdentityReused;
    }

    void replace(Oid oid, Record record) {
        Write before = pending.get(oid);
        boolean isNew = before != null && before.isNew();
        StoredObject object = StoredObject.record(record);
        write(oid, isNew ? Change.create(oid, object) : Change.replace(oid, object), record, isNew);
    }

    void delete(Oid oid) {
        created.remove(identities.remove(oid), oid);
        Write before = pending.get(oid);
        if (before != null && before.isNew()) {
            pending.remove(oid);
        } else {
            write(oid, Change.delete(oid), null, false);
            deleted.add(oid);
        }
    }

    private void write(Oid oid, Change change, Record record, boolean isNew) {
        hasWrites = true;
        pending.put(oid, new Write(change, record, isNew));
    }

    /** Notes the record that an object had before the transaction changes or deletes it. */
    void rememberChanged(Oid oid, DNStateManager manager, Record before) {
        if (changed.size() < MANY_CHANGED && !manager.getLifecycleState().isNew()) {
            changed.putIfAbsent(oid, new Basis(manager, before));
        }
    }

    /** Sends what has been written. */
    void flush() {
        if (pending.isEmpty()) {
            return;
        }
        List<Change> changes = pending.values().stream().map(Write::change).toList();
        Transaction current = call(this::transaction);
        call(() -> limited(writeLimitMs(), () -> "a write", () -> {
            current.write(changes);
            return null;
        }));
        pending.clear();
    }

    /** Runs a query, which sees the writes of this transaction. */
    Rows query(String text, Map<String, ?> parameters) {
        hasQueried = true;
        return call(prepared(text, parameters));
    }

    /** Runs a query as far as its first rows, within a number of milliseconds. */
    Rows query(String text, Map<String, ?> parameters, long limitMs, Supplier<RuntimeException> tooLong) {
        hasQueried = true;
        Supplier<Rows> query = prepared(text, parameters);
        return call(() -> {
            try {
                return TimeLimit.run(() -> begun(query), limitMs);
            } catch (TimeoutException late) {
                throw tooLong.get();
            }
        });
    }

    /** A query that sees what has been written until now, for any thread. */
    private Supplier<Rows> prepared(String text, Map<String, ?> parameters) {
        flush();
        if (isImplicit && !isChanging) {
            return () -> client.query(text, parameters);
        }
        Transaction current = call(this::transaction);
        return () -> current.query(text, parameters);
    }

    /** The query runs when its rows are asked for. */
    private static Rows begun(Supplier<Rows> query) {
        Rows rows = query.get();
        rows.hasNext();
        return rows;
    }

    /** Runs a query that only finds identifiers. A group snapshot has no queries, so the query runs outside of it. */
    Rows lookUp(String text, Map<String, ?> parameters) {
        Supplier<Rows> query = isSnapshot() ? () -> client.query(text, parameters) : prepared(text, parameters);
        return call(() -> limited(TimeLimit.ofReads(context), () -> "a read by an identity", () -> begun(query)));
    }

    boolean isSnapshot() {
        return !isImplicit && level() == IsolationLevel.SNAPSHOT;
    }

    // ------------------------------------------------------------------------------------------- the end

    /** Commits. */
    void commit() {
        try {
            if (!outdated.isEmpty()) {
                throw StoreErrors.outdated(outdated);
            }
            flush();
            if (transaction != null) {
                Transaction ending = transaction;
                CommitOutcome outcome = call(ending::commit);
                if (outcome instanceof CommitOutcome.Unknown unknown) {
                    outcome = outcomeOf(unknown.transaction());
                }
                if (outcome instanceof CommitOutcome.Conflict conflict) {
                    throw StoreErrors.conflict(context, conflict.reason(), conflict.object());
                }
                afterCommit.forEach(
                        action -> action.accept(oid -> ending.realOid(oid).orElse(null)));
            }
        } catch (NucleusOptimisticException conflict) {
            throw withAllObjects(conflict);
        } catch (NucleusException error) {
            throw error;
        } catch (RuntimeException ofApi) {
            // DataNucleus rolls a transaction back for errors of its own only.
            throw new NucleusDataStoreException(ofApi.getMessage(), ofApi);
        } finally {
            end();
            outdated.clear();
        }
    }

    /** The error of a conflict for all changed objects that other transactions have changed. */
    private NucleusOptimisticException withAllObjects(NucleusOptimisticException conflict) {
        if (changed.size() < 2) {
            return conflict;
        }
        try (Transaction reading = client.begin(IsolationLevel.OPTIMISTIC)) {
            Map<Oid, StoredObject> stored = reading.getAll(changed.keySet());
            List<DNStateManager> failed = new ArrayList<>();
            changed.forEach((oid, basis) -> {
                boolean isChanged = !stored.containsKey(oid)
                        || !basis.record().equals(stored.get(oid).record());
                // The context may have been cleared meanwhile.
                if (isChanged && basis.manager().isConnected()) {
                    failed.add(basis.manager());
                }
            });
            return StoreErrors.conflicts(conflict, failed);
        } catch (MortarException error) {
            NucleusLogger.TRANSACTION.debug("it is not known which objects a conflict is about", error);
            return conflict;
        }
    }

    /** Asks until the cluster knows how a transaction has ended. */
    private CommitOutcome outcomeOf(TransactionId id) {
        MortarException last = null;
        for (int attempt = 0; attempt < OUTCOME_ATTEMPTS; attempt++) {
            try {
                CommitOutcome outcome = client.outcome(id);
                if (!(outcome instanceof CommitOutcome.Unknown)) {
                    return outcome;
                }
            } catch (MortarException error) {
                last = error;
            }
            try {
                Thread.sleep(OUTCOME_PAUSE_MS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                break;
            }
        }
        String unknown = "it is not known whether the transaction " + id + " was committed: read what it has written";
        throw new NucleusDataStoreException(unknown, new UnknownOutcomeException(unknown, last)).setFatal();
    }

    /** Aborts, unless the transaction has ended. */
    void abort() {
        end();
        outdated.clear();
    }

    private void end() {
        pending.clear();
        orphans.clear();
        deleted.clear();
        created.clear();
        identities.clear();
        deletedIdentities.clear();
        isIdentityReused = false;
        changed.clear();
        read.clear();
        afterCommit.clear();
        isChanging = false;
        hasWrites = false;
        hasAllocated = false;
        hasQueried = false;
        isUpgraded = false;
        epoch = EPOCHS.incrementAndGet();
        Transaction ended = transaction;
        transaction = null;
        if (ended != null) {
            try {
                ended.close();
            } catch (MortarException error) {
                NucleusLogger.TRANSACTION.debug("a transaction that has ended cannot be closed", error);
            }
        }
    }

    /**
     * Notes that the session is used for a change. Outside of a transaction of the context, what is read from now on is
     * read in the transaction that makes the change, until the connection is released.
     */
    void beginChange() {
        isChanging = isImplicit;
    }

    /**
     * Ends the use of the session outside of a transaction of the context: commits its writes. Without a change, the
     * transaction continues if it has allocated the identifier of an object that will be stored next.
     */
    void release() {
        if (hasWrites) {
            commit();
        } else if (isChanging || !hasAllocated) {
            end();
        }
    }
}
