package io.mortar;

import java.io.InputStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * A transaction: it reads and writes objects, and takes effect as a whole or not at all. It is closed at its end;
 * closed before its commit, it changes nothing.
 *
 * <pre>{@code
 * try (Transaction t = client.begin()) {
 *     Oid note = t.createBlob("all of this, or nothing".getBytes(UTF_8));
 *     t.bind("notes/first", note);
 *     if (t.commit() instanceof CommitOutcome.Conflict conflict) {
 *         // Nothing was changed: run it again. Client.transact does that.
 *     }
 * }
 * }</pre>
 *
 * <p>An object that a transaction creates has a temporary identifier, which its records may refer to. The commit
 * assigns the permanent one, which {@link #realOid} returns, and replaces the references. {@link #allocate(int, int)}
 * returns permanent identifiers in advance.
 *
 * <p>Each method throws {@link InvalidRequestException} if the transaction is over, {@link ConflictException} if it
 * cannot be committed any more, {@link UnavailableException} if a server does not answer in time, and
 * {@link StoppedException} while the space is stopped. At the level {@link IsolationLevel#SNAPSHOT} it cannot write,
 * and cannot look up names.
 *
 * <p>Threads may share a transaction.
 */
public final class Transaction extends BlobTransaction implements AutoCloseable {
    /** The most objects that are requested at once. A reply has fewer if they are large. */
    private static final int GET_PORTION = 1024;
    /** Bytes after which a request to write is sent, so that requests are of limited size. */
    private static final int WRITE_PORTION = 8 << 20;

    /** The permanent identifiers of the objects that it has created, after the commit. */
    private volatile Map<Oid, Oid> realOids = Map.of();

    private volatile TransactionId id;

    Transaction(NativeHandle handle) {
        super(handle);
    }

    NativeHandle handle() {
        return handle;
    }

    /**
     * Returns the identifier of the transaction, for {@link Client#outcome}.
     *
     * @return the identifier
     * @throws InvalidRequestException if the transaction is over and this was not called before
     */
    public TransactionId id() {
        TransactionId known = id;
        if (known == null) {
            known = handle.call(Operation.T_ID, null, reply -> TransactionId.fromBytes(reply.bytes()));
            id = known;
        }
        return known;
    }

    /**
     * Returns whether the transaction is over: committed, aborted, or closed.
     *
     * @return whether it is over
     */
    public boolean isOver() {
        return handle.isClosed();
    }

    // ------------------------------------------------------------------------------------------ reading

    /**
     * Reads an object.
     *
     * @param oid the object
     * @return the object with the changes of this transaction; empty if there is no such object
     * @throws InvalidRequestException if the object is of another space
     */
    public Optional<StoredObject> get(Oid oid) {
        return getOne(oid, false);
    }

    /**
     * Reads an object that this transaction is going to write. At the level {@link IsolationLevel#LOCKS} it is locked
     * exclusively.
     *
     * @param oid the object
     * @return the object; empty if there is no such object
     * @throws InvalidRequestException if the object is of another space
     */
    public Optional<StoredObject> getForUpdate(Oid oid) {
        return getOne(oid, true);
    }

    /**
     * Reads objects with as few messages as possible.
     *
     * @param oids the objects
     * @return the objects that exist, in the order of {@code oids}
     * @throws InvalidRequestException if an object is of another space
     */
    public Map<Oid, StoredObject> getAll(Collection<Oid> oids) {
        return getMany(oids, false);
    }

    /**
     * Reads objects that this transaction is going to write: {@link #getForUpdate}.
     *
     * @param oids the objects
     * @return the objects that exist, in the order of {@code oids}
     * @throws InvalidRequestException if an object is of another space
     */
    public Map<Oid, StoredObject> getAllForUpdate(Collection<Oid> oids) {
        return getMany(oids, true);
    }

    private Optional<StoredObject> getOne(Oid oid, boolean forUpdate) {
        return Optional.ofNullable(getPortion(List.of(oid), forUpdate).get(0));
    }

    private Map<Oid, StoredObject> getMany(Collection<Oid> oids, boolean forUpdate) {
        List<Oid> all = List.copyOf(oids);
        Map<Oid, StoredObject> found = new LinkedHashMap<>();
        int most = GET_PORTION;
        int from = 0;
        while (from < all.size()) {
            List<Oid> portion = all.subList(from, Math.min(all.size(), from + most));
            List<StoredObject> objects = getPortion(portion, forUpdate);
            for (int index = 0; index < objects.size(); index++) {
                if (objects.get(index) != null) {
                    found.put(portion.get(index), objects.get(index));
                }
            }
            from += objects.size();
            // Objects that a reply has no room for are read again, so no more are requested than fit.
            most = objects.size() < portion.size() ? objects.size() : Math.min(GET_PORTION, 2 * most);
        }
        return found;
    }

    /** Reads the first of some objects: as many as a reply has room for, at least one. */
    private List<StoredObject> getPortion(List<Oid> oids, boolean forUpdate) {
        MessageWriter request =
                new MessageWriter().list(oids, MessageWriter::oid).bool(forUpdate);
        return handle.call(Operation.T_GET, request, reply -> {
            List<StoredObject> objects = reply.list(in -> in.optional(StoredObject::read));
            if (objects.isEmpty() || objects.size() > oids.size()) {
                throw MessageReader.malformed(objects.size() + " objects instead of " + oids.size());
            }
            return objects;
        });
    }

    /**
     * Fetches objects into the client's cache, so that reading them later does not wait. They do not count as read.
     *
     * @param oids the objects; those that do not exist are ignored
     */
    public void prefetch(Collection<Oid> oids) {
        handle.call(Operation.T_PREFETCH, new MessageWriter().list(oids, MessageWriter::oid));
    }

    /**
     * Runs a query, which sees the writes of this transaction. The answer counts as read: if another transaction
     * changes it, this transaction conflicts.
     *
     * @param text the query, as {@code docs/queries.md} describes it
     * @return its rows
     * @throws InvalidRequestException with the position in the query, if it does not match the classes of the space
     * @throws UnsupportedException at the level {@link IsolationLevel#SNAPSHOT}
     */
    public Rows query(String text) {
        return query(text, Map.of());
    }

    /**
     * Runs a query with parameters; see {@link #query(String)}.
     *
     * @param text the query
     * @param parameters the values of {@code :name} by name, which are values of {@link Record}
     * @return its rows
     * @throws InvalidRequestException with the position in the query, if it does not match the classes of the space
     * @throws UnsupportedException at the level {@link IsolationLevel#SNAPSHOT}
     */
    public Rows query(String text, Map<String, ?> parameters) {
        return Rows.open(handle, Operation.T_QUERY, TransactionMessages.writeQuery(text, parameters), false);
    }

    // ------------------------------------------------------------------------------------------ writing

    /**
     * Creates an object of a class under a temporary identifier.
     *
     * @param classNumber the number of the class: {@link Schema#classNumber}
     * @param record its fields
     * @return the temporary identifier
     * @throws InvalidRequestException if there is no such class, or the object cannot be stored
     * @throws TooLargeException for more than 4 MiB
     */
    public Oid create(int classNumber, Record record) {
        return create(classNumber, record, PlacementHint.anywhere());
    }

    /**
     * Creates an object of a class under a temporary identifier, with a placement hint; see {@link #create(int,
     * Record)}.
     *
     * @param classNumber the number of the class: {@link Schema#classNumber}
     * @param record its fields
     * @param hint where it is placed
     * @return the temporary identifier
     * @throws InvalidRequestException if there is no such class, or the object cannot be stored
     * @throws TooLargeException for more than 4 MiB
     */
    public Oid create(int classNumber, Record record, PlacementHint hint) {
        return createObject(classNumber, StoredObject.record(record), hint);
    }

    /**
     * Creates an object, such as one with attributes, under a temporary identifier.
     *
     * @param classNumber the number of the class of a record; 0 for a blob or a set
     * @param object its state
     * @param hint where it is placed
     * @return the temporary identifier
     * @throws InvalidRequestException if there is no such class, or the object cannot be stored
     * @throws TooLargeException for more than 4 MiB
     */
    public Oid createObject(int classNumber, StoredObject object, PlacementHint hint) {
        MessageWriter request = new MessageWriter().u32(classNumber);
        object.write(request);
        return noteCreated(Operation.T_CREATE, TransactionMessages.writeHint(request, hint));
    }

    /**
     * Creates a blob under a temporary identifier.
     *
     * @param bytes its bytes
     * @return the temporary identifier
     * @throws TooLargeException for more than 4 MiB: upload them with {@link Client#upload(InputStream)}
     */
    public Oid createBlob(byte[] bytes) {
        return createBlob(bytes, PlacementHint.anywhere());
    }

    /**
     * Creates a blob under a temporary identifier, with a placement hint.
     *
     * @param bytes its bytes
     * @param hint where it is placed
     * @return the temporary identifier
     * @throws TooLargeException for more than 4 MiB: upload them with {@link Client#upload(InputStream)}
     */
    public Oid createBlob(byte[] bytes, PlacementHint hint) {
        return createObject(0, StoredObject.blob(bytes), hint);
    }

    /**
     * Creates a blob with bytes that were uploaded, at the logical node where they are, under a temporary identifier.
     *
     * @param staged the bytes. The commit throws {@link NotFoundException} if they are not staged any more
     * @return the temporary identifier
     */
    public Oid createBlob(StagedContent staged) {
        return withStaged(staged, number -> noteCreated(Operation.T_CREATE_BLOB_FROM, new MessageWriter().u64(number)));
    }

    /**
     * Creates an empty set under a temporary identifier.
     *
     * @return the temporary identifier
     */
    public Oid createCollection() {
        return noteCreated(Operation.T_CREATE_COLLECTION, null);
    }

    /**
     * Returns the permanent identifier of an object that this transaction has created, after the commit.
     *
     * @param oid a temporary identifier, or a permanent one, which is returned as it is
     * @return the permanent identifier; empty before the commit, and for an object that was deleted again
     */
    public Optional<Oid> realOid(Oid oid) {
        return oid.isTemporary() ? Optional.ofNullable(realOids.get(oid)) : Optional.of(oid);
    }

    /**
     * Returns a permanent identifier for an object that this transaction is going to create with {@link #write}.
     *
     * @param classNumber the number of its class: {@link Schema#classNumber}
     * @param approximateBytes about how many bytes its record will have, by which pages are filled
     * @return the identifier
     */
    public Oid allocate(int classNumber, int approximateBytes) {
        return allocate(classNumber, List.of(new Allocation(approximateBytes, PlacementHint.anywhere())))
                .get(0);
    }

    /**
     * Returns permanent identifiers for objects that this transaction is going to create with {@link #write}.
     *
     * @param classNumber the number of their class: {@link Schema#classNumber}
     * @param objects the objects
     * @return an identifier for each, in the same order
     */
    public List<Oid> allocate(int classNumber, List<Allocation> objects) {
        MessageWriter request = new MessageWriter().u32(classNumber).list(objects, (out, object) -> object.write(out));
        return handle.call(Operation.T_ALLOCATE, request, reply -> {
            List<Oid> oids = reply.list(MessageReader::oid);
            if (oids.size() != objects.size()) {
                throw MessageReader.malformed(oids.size() + " identifiers instead of " + objects.size());
            }
            return oids;
        });
    }

    /**
     * Changes objects with as few calls as possible. Not all changes or none: if this throws an exception, whatever it
     * is, some of the changes may be made in this transaction, and a commit would keep them.
     *
     * @param changes the changes, which are made in this order
     * @throws InvalidRequestException for an object that cannot be stored; the changes before it are made
     * @throws TooLargeException for an object of more than 4 MiB; the changes before it are made
     */
    public void write(List<Change> changes) {
        int next = 0;
        while (next < changes.size()) {
            int first = next;
            MessageWriter request = new MessageWriter().u32(0);
            while (next < changes.size() && request.length() < WRITE_PORTION) {
                changes.get(next++).write(request);
            }
            request.setU32(0, next - first);
            handle.call(Operation.T_WRITE, request);
        }
    }

    /**
     * Replaces an object.
     *
     * @param oid the object
     * @param object its new state, of the class that the identifier names
     * @throws InvalidRequestException for an object that cannot be stored
     * @throws TooLargeException for more than 4 MiB
     */
    public void put(Oid oid, StoredObject object) {
        write(List.of(Change.replace(oid, object)));
    }

    /**
     * Replaces a record. It has no attributes then.
     *
     * @param oid the object
     * @param record its fields
     * @throws InvalidRequestException for an object that cannot be stored
     * @throws TooLargeException for more than 4 MiB
     */
    public void put(Oid oid, Record record) {
        put(oid, StoredObject.record(record));
    }

    /**
     * Deletes an object. References to it and its names remain.
     *
     * @param oid the object
     */
    public void delete(Oid oid) {
        write(List.of(Change.delete(oid)));
    }

    /**
     * Deletes an object with all its names and its memberships in sets. Names that are bound meanwhile are not found:
     * they stay, and name an object that does not exist.
     *
     * @param oid the object
     */
    public void deleteWithNames(Oid oid) {
        handle.call(Operation.T_DELETE_WITH_NAMES, new MessageWriter().oid(oid));
    }

    /**
     * Sets an attribute of an object.
     *
     * @param oid the object
     * @param key the key, 1 to 255 bytes of UTF-8
     * @param value the value, at most 1 MiB
     * @throws NotFoundException if there is no such object
     * @throws TooLargeException for an attribute beyond its limits
     */
    public void setAttribute(Oid oid, String key, byte[] value) {
        changeAttribute(oid, ValueEncoder.utf8(key), Objects.requireNonNull(value));
    }

    /**
     * Sets an attribute of an object whose key is not text.
     *
     * @param oid the object
     * @param key the key, 1 to 255 bytes
     * @param value the value, at most 1 MiB
     * @throws NotFoundException if there is no such object
     * @throws TooLargeException for an attribute beyond its limits
     */
    public void setAttribute(Oid oid, byte[] key, byte[] value) {
        changeAttribute(oid, key, Objects.requireNonNull(value));
    }

    /**
     * Removes an attribute of an object, if it has the attribute.
     *
     * @param oid the object
     * @param key the key, as UTF-8
     * @throws NotFoundException if there is no such object
     */
    public void removeAttribute(Oid oid, String key) {
        changeAttribute(oid, ValueEncoder.utf8(key), null);
    }

    /**
     * Removes an attribute of an object whose key is not text, if it has the attribute.
     *
     * @param oid the object
     * @param key the key
     * @throws NotFoundException if there is no such object
     */
    public void removeAttribute(Oid oid, byte[] key) {
        changeAttribute(oid, key, null);
    }

    private void changeAttribute(Oid oid, byte[] key, byte[] value) {
        MessageWriter request = new MessageWriter().oid(oid).bytes(key).optional(value, MessageWriter::bytes);
        handle.call(Operation.T_SET_ATTRIBUTE, request);
    }

    // ------------------------------------------------------------------------------------------ the end

    /**
     * Commits the transaction.
     *
     * <p>An exception says that the transaction has changed nothing, but {@link UnknownOutcomeException}. If the
     * transaction was not sent, it is not over: it may be committed again or aborted.
     *
     * @return the outcome, which the caller has to look at: {@link CommitOutcome#orThrow}
     * @throws InvalidRequestException if the transaction is over
     * @throws AlreadyExistsException if the transaction gives an object values of a unique index that another object
     *     has
     * @throws UnavailableException if a brick that it needs cannot be reached in time
     * @throws FullException if a brick has no room
     * @throws TooLargeException beyond the limits of transactions
     * @throws UnknownOutcomeException if a brick has deferred it and does not answer in time, or the Java heap has no
     *     room for the outcome
     */
    public CommitOutcome commit() {
        CommitOutcome outcome = handle.call(Operation.T_COMMIT, null, TransactionMessages::readOutcome);
        end(outcome.isCommitted());
        return outcome;
    }

    /**
     * Ends the transaction without its writes, and checks whether what it read was consistent.
     *
     * @return {@link CommitOutcome.Committed} if it was
     * @throws MortarException as {@link #commit}
     */
    public CommitOutcome check() {
        CommitOutcome outcome = handle.call(Operation.T_CHECK, null, TransactionMessages::readOutcome);
        end(false);
        return outcome;
    }

    /** Aborts the transaction: it changes nothing. A transaction that is over stays as it is. */
    public void abort() {
        if (!handle.isClosed()) {
            try {
                handle.call(Operation.T_ABORT, null);
            } finally {
                handle.close();
            }
        }
    }

    /** Aborts the transaction, if it is not over. It does not wait. */
    @Override
    public void close() {
        handle.close();
    }

    /** Handles the end of the transaction: keeps what callers may ask for, and releases the handle. */
    void end(boolean isCommitted) {
        if (isCommitted) {
            try {
                fetchRealOids();
                fetchAppendOffsets();
            } catch (MortarException | OutOfMemoryError lost) {
                // The client was closed meanwhile, or there is no memory. The commit is a fact all the same.
                System.getLogger(Transaction.class.getName())
                        .log(System.Logger.Level.DEBUG, "identifiers of new objects are not known", lost);
            }
        }
        handle.close();
    }

    private void fetchRealOids() {
        if (created.isEmpty()) {
            return;
        }
        List<Oid> temporary = new ArrayList<>(created);
        MessageWriter request = new MessageWriter().list(temporary, MessageWriter::oid);
        List<Oid> real =
                handle.call(Operation.T_REAL_OIDS, request, reply -> reply.list(in -> in.optional(MessageReader::oid)));
        Map<Oid, Oid> byTemporary = new HashMap<>();
        for (int index = 0; index < real.size(); index++) {
            if (real.get(index) != null) {
                byTemporary.put(temporary.get(index), real.get(index));
            }
        }
        realOids = byTemporary;
    }
}
