package io.mortar;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A client of one space of a Mortar cluster. It reads objects from cached copies and changes them in transactions.
 *
 * <pre>{@code
 * try (Client client = Client.connect("mortar://localhost:6678/main")) {
 *     client.define(ClassDefinition.builder("Person")
 *             .required("name", FieldType.STRING)
 *             .required("age", FieldType.INT64)
 *             .build());
 *     Schema schema = client.schema();
 *     int name = schema.fieldNumber("Person", "name");
 *     int age = schema.fieldNumber("Person", "age");
 *
 *     client.run(t -> {
 *         Record ann = Record.builder().set(name, "Ann").set(age, 50).build();
 *         t.bind("people/ann", t.create(schema.classNumber("Person"), ann));
 *     });
 *
 *     try (Rows rows = client.query("from Person where age > :age", Map.of("age", 40))) {
 *         rows.forEachRemaining(row -> System.out.println(row.record().get(name)));
 *     }
 * }
 * }</pre>
 *
 * <p>Threads share a client: one is enough for a process. A thread that waits, a virtual one too, is not interrupted.
 * Virtual threads wait without their carrier threads.
 *
 * <p>Each method throws {@link InvalidRequestException} if the client is closed, {@link UnavailableException} if a
 * server does not answer in time, {@link StoppedException} while the space is stopped, and
 * {@link AccessDeniedException} without permission. All errors are {@link MortarException}s.
 */
public final class Client implements AutoCloseable {
    private final NativeHandle handle;
    private final int space;
    private final AtomicBoolean isClosing = new AtomicBoolean();

    private Client(NativeHandle handle, int space) {
        this.handle = handle;
        this.space = space;
    }

    /**
     * Connects with the default options; see {@link #connect(String, ConnectOptions)}.
     *
     * @param url {@code mortar://HOST:PORT[,HOST:PORT…][/SPACE]}
     * @return the client
     */
    public static Client connect(String url) {
        return connect(url, ConnectOptions.defaults());
    }

    /**
     * Connects to the first peer server of a URL that answers, and later to another one if the connection ends or the
     * peer server hangs.
     *
     * @param url {@code mortar://[USER@]HOST[:PORT][,HOST[:PORT]…][/SPACE]}; {@code mortars://…} for TLS;
     *     {@code mortar+unix://[USER@]/PATH/OF/SOCKET[/SPACE]}. The default port is 6678, the default space
     *     {@code main}
     * @param options the options
     * @return the client
     * @throws InvalidRequestException if the URL is malformed
     * @throws UnavailableException if no peer server answers in time
     * @throws AccessDeniedException if none admits the client
     * @throws UnsatisfiedLinkError if there is no native library for this platform
     */
    public static Client connect(String url, ConnectOptions options) {
        return open(Operation.CONNECT, new MessageWriter().string(url), options);
    }

    /**
     * Opens a cluster within this process with the default options; see {@link #open(Path, ConnectOptions)}.
     *
     * @param directory the directory
     * @return the client
     */
    public static Client open(Path directory) {
        return open(directory, ConnectOptions.defaults());
    }

    /**
     * Runs the whole cluster of a directory within this process, and connects to its space {@code main}. {@link #close}
     * ends it: then the directory can be opened again. {@code mortar dev --data DIRECTORY} runs the same cluster for
     * many processes.
     *
     * @param directory the directory, which is created if it does not exist
     * @param options the options
     * @return the client
     * @throws UnavailableException if another client or process has the directory open
     * @throws InvalidRequestException if the directory contains other files
     * @throws CorruptException if its files are damaged
     * @throws UnsatisfiedLinkError if there is no native library for this platform
     */
    public static Client open(Path directory, ConnectOptions options) {
        return open(Operation.OPEN, new MessageWriter().string(directory.toString()), options);
    }

    /**
     * Runs a cluster within this process whose objects are in memory, such as for tests. They are lost when the client
     * is closed.
     *
     * @return the client
     * @throws UnsatisfiedLinkError if there is no native library for this platform
     */
    public static Client inMemory() {
        return inMemory(ConnectOptions.defaults());
    }

    /**
     * The same with options.
     *
     * @param options the options
     * @return the client
     * @throws UnsatisfiedLinkError if there is no native library for this platform
     */
    public static Client inMemory(ConnectOptions options) {
        return open(Operation.IN_MEMORY, new MessageWriter(), options);
    }

    private static Client open(Operation operation, MessageWriter request, ConnectOptions options) {
        NativeLibrary.load();
        options.write(request);
        return NativeHandle.callWithoutHandle(
                operation, request, reply -> new Client(new NativeHandle(reply.u64(), null, "client"), reply.u16()));
    }

    /**
     * Returns the number of the space, as in {@link Oid#space}.
     *
     * @return the space
     */
    public int space() {
        return space;
    }

    /**
     * Returns the logical nodes of the space, over which its objects are spread.
     *
     * @return the numbers of the logical nodes, as in {@link Oid#node}
     */
    public List<Integer> nodes() {
        return handle.call(Operation.NODES, null, reply -> reply.list(MessageReader::u32));
    }

    // ------------------------------------------------------------------------------------------ transactions

    /**
     * Begins a transaction at the level {@link IsolationLevel#OPTIMISTIC}. {@link #transact} is usually simpler.
     *
     * @return the transaction, which the caller closes
     */
    public Transaction begin() {
        return begin(IsolationLevel.OPTIMISTIC);
    }

    /**
     * Begins a transaction.
     *
     * @param level how it reads
     * @return the transaction, which the caller closes
     */
    public Transaction begin(IsolationLevel level) {
        return new Transaction(handle.open(Operation.BEGIN, new MessageWriter().u8(level.code()), "transaction"));
    }

    /**
     * Runs {@code body} in a transaction and commits it. If the transaction conflicts with another one, {@code body}
     * runs again; after the third conflict with locks.
     *
     * <pre>{@code
     * long balance = client.transact(t -> {
     *     Record account = t.getForUpdate(oid).orElseThrow().record();
     *     long increased = account.get(BALANCE, Long.class) + 10;
     *     t.put(oid, account.toBuilder().set(BALANCE, increased).build());
     *     return increased;
     * });
     * }</pre>
     *
     * <p>{@code body} may run several times, and an attempt that conflicts may have read an inconsistent state. Only
     * the attempt that commits counts, or one that throws an exception after a consistent read: the transaction has
     * changed nothing then. {@code body} should therefore have no effects but on the transaction and its result. It
     * does not commit or abort the transaction, which is over when this method returns. {@link Transaction#realOid} and
     * {@link Transaction#appendOffsets} of the committed transaction can be called afterwards.
     *
     * <p>An {@link InterruptedException} that {@code body} throws, itself or as a cause, is thrown in any case: the
     * transaction has changed nothing, and does not run again.
     *
     * <p>A call of this method within {@code body} runs another transaction, which is independent of the outer one: it
     * stays committed if the outer one changes nothing, may conflict with it, and waits in vain for its locks. Pass the
     * transaction on instead.
     *
     * @param <T> the type of the result
     * @param <E> the type of the checked exceptions of {@code body}
     * @param body what the transaction does
     * @return what {@code body} returned in the attempt that was committed
     * @throws E if {@code body} throws it after a consistent read
     * @throws UnavailableException if something that the transaction needs has not arrived in time: it has changed
     *     nothing
     * @throws StoppedException at once, while the space is stopped
     * @throws UnknownOutcomeException if the outcome of the commit did not arrive in time
     */
    public <T, E extends Exception> T transact(TransactionBody<? extends T, E> body) throws E {
        Objects.requireNonNull(body);
        try (Attempts attempts = new Attempts(handle)) {
            while (true) {
                try (Transaction transaction = attempts.begin()) {
                    T result;
                    try {
                        result = body.run(transaction);
                    } catch (VirtualMachineError error) {
                        throw error;
                    } catch (Throwable failure) {
                        if (attempts.isFinal(transaction, failure)) {
                            throw failure;
                        }
                        continue;
                    }
                    if (attempts.commit(transaction)) {
                        return result;
                    }
                }
            }
        }
    }

    /**
     * Runs {@code action} in a transaction and commits it; see {@link #transact}.
     *
     * @param <E> the type of the checked exceptions of {@code action}
     * @param action what the transaction does
     * @throws E if {@code action} throws it after a consistent read
     * @throws MortarException as {@link #transact}
     */
    public <E extends Exception> void run(TransactionAction<E> action) throws E {
        Objects.requireNonNull(action);
        TransactionBody<Void, E> body = transaction -> {
            action.run(transaction);
            return null;
        };
        transact(body);
    }

    /**
     * Finds out the outcome of a transaction whose commit was {@link CommitOutcome.Unknown}. A transaction that is not
     * committed by then never will be.
     *
     * @param transaction its identifier
     * @return the outcome
     * @throws UnknownOutcomeException if a brick has deferred the transaction and does not answer in time
     * @throws InvalidRequestException for a transaction whose outcome was told, or that this client did not commit
     */
    public CommitOutcome outcome(TransactionId transaction) {
        MessageWriter request = new MessageWriter().bytes(transaction.toBytes());
        return handle.call(Operation.OUTCOME, request, TransactionMessages::readOutcome);
    }

    // ------------------------------------------------------------------------------------------ objects

    /**
     * Reads an object outside of transactions, from the nearest copy.
     *
     * @param oid the object
     * @return the object; empty if there is no such object
     * @throws InvalidRequestException if the object is of another space
     */
    public Optional<StoredObject> get(Oid oid) {
        return handle.call(Operation.GET, new MessageWriter().oid(oid), reply -> reply.maybe(StoredObject::read));
    }

    /**
     * Reads the newest durable state of an object from its brick, not from a copy.
     *
     * @param oid the object
     * @return the object; empty if there is no such object
     * @throws InvalidRequestException if the object is of another space
     */
    public Optional<StoredObject> readLatest(Oid oid) {
        return handle.call(
                Operation.READ_LATEST, new MessageWriter().oid(oid), reply -> reply.maybe(StoredObject::read));
    }

    /**
     * Replaces an object outside of transactions, and waits until that is durable. Other clients see the writes of this
     * client in the order in which they were started.
     *
     * @param oid the object
     * @param object its new state, of the class that the identifier names
     * @throws InvalidRequestException for an object that cannot be stored, or that has values of a unique index
     * @throws TooLargeException for more than 4 MiB
     * @throws UnknownOutcomeException if it is not known whether the object was replaced
     */
    public void put(Oid oid, StoredObject object) {
        MessageWriter request = new MessageWriter().oid(oid).u32(oid.classNumber());
        object.write(request);
        handle.call(Operation.PUT, request);
    }

    /**
     * Reads the properties of an object from its brick.
     *
     * @param oid the object
     * @return its properties; empty if there is no such object
     */
    public Optional<ObjectStat> stat(Oid oid) {
        return handle.call(
                Operation.STAT, new MessageWriter().oid(oid), reply -> reply.maybe(in -> ObjectStat.read(oid, in)));
    }

    /**
     * Lists all objects of the space, with or without names.
     *
     * @return the objects, which the caller closes
     */
    public Listing<ListedObject> objects() {
        NativeHandle objects = handle.open(Operation.OBJECTS, null, "listing");
        return new Listing<>(objects, Operation.OBJECTS_NEXT, ListedObject::read);
    }

    // ------------------------------------------------------------------------------------------ names and collections

    /**
     * Finds the object that a path is bound to, outside of transactions.
     *
     * @param path the path; a {@code /} at its beginning means nothing
     * @return the object, if the path is bound; the root directory for an empty path
     * @throws InvalidRequestException for an invalid path
     */
    public Optional<Oid> resolve(String path) {
        return handle.call(
                Operation.RESOLVE, new MessageWriter().string(path), reply -> reply.maybe(MessageReader::oid));
    }

    /**
     * Lists the names of the space that begin with a prefix, without those of directories; see {@link NameListOptions}.
     *
     * @param prefix the beginning of the paths; empty for all names
     * @return the names, which the caller closes
     */
    public Listing<ListedName> names(String prefix) {
        return names(NameListOptions.prefix(prefix));
    }

    /**
     * Lists names of the space.
     *
     * @param options which names
     * @return the names, which the caller closes
     */
    public Listing<ListedName> names(NameListOptions options) {
        MessageWriter request = new MessageWriter();
        options.write(request);
        return new Listing<>(handle.open(Operation.NAMES, request, "listing"), Operation.NAMES_NEXT, ListedName::read);
    }

    /**
     * Finds the paths that an object is bound to, from the object, outside of transactions.
     *
     * @param oid the object
     * @return the absolute paths, sorted
     */
    public List<String> namesOf(Oid oid) {
        return handle.call(
                Operation.NAMES_OF, new MessageWriter().oid(oid), reply -> reply.list(MessageReader::string));
    }

    /**
     * Finds the sets that an object is a member of, from the object, outside of transactions.
     *
     * @param oid the object
     * @return the sets
     */
    public List<Oid> collectionsOf(Oid oid) {
        return handle.call(
                Operation.COLLECTIONS_OF, new MessageWriter().oid(oid), reply -> reply.list(MessageReader::oid));
    }

    /**
     * Lists members of a set in the order of identifiers, outside of transactions.
     *
     * @param collection the set
     * @param after the member after which the list begins; null for the beginning
     * @param limit the maximum number of members
     * @return the members
     */
    public List<Oid> members(Oid collection, Oid after, int limit) {
        MessageWriter request = new MessageWriter().oid(collection).range(after, MessageWriter::oid, limit);
        return handle.call(Operation.MEMBERS, request, reply -> reply.list(MessageReader::oid));
    }

    /**
     * Looks up a name in a directory, outside of transactions.
     *
     * @param directory the directory
     * @param name the name: one component of a path
     * @return the object that it is bound to; empty if it is not bound
     */
    public Optional<Oid> entry(Oid directory, String name) {
        MessageWriter request = new MessageWriter().oid(directory).string(name);
        return handle.call(Operation.ENTRY, request, reply -> reply.maybe(MessageReader::oid));
    }

    /**
     * Lists names of a directory in the order of their bytes, outside of transactions.
     *
     * @param directory the directory
     * @param after the name after which the list begins; null for the beginning
     * @param limit the maximum number of names
     * @return the names
     */
    public List<DirectoryEntry> entries(Oid directory, String after, int limit) {
        MessageWriter request = new MessageWriter().oid(directory).range(after, MessageWriter::string, limit);
        return handle.call(Operation.ENTRIES, request, reply -> reply.list(DirectoryEntry::read));
    }

    /**
     * Counts the entries of a set or a directory, outside of transactions.
     *
     * @param collection the set or the directory
     * @return the number of entries, and when the last one changed
     */
    public CollectionTotals totals(Oid collection) {
        return handle.call(Operation.TOTALS, new MessageWriter().oid(collection), CollectionTotals::read);
    }

    // ------------------------------------------------------------------------------------------ queries

    /**
     * Runs a query outside of transactions: each object is as it was when the query examined it.
     *
     * @param text the query, as {@code docs/queries.md} describes it: {@code from Person where age < 30 order by name}
     * @return its rows, which the caller closes
     * @throws InvalidRequestException with the position in the query, if it does not match the classes of the space
     */
    public Rows query(String text) {
        return query(text, Map.of());
    }

    /**
     * Runs a query with parameters; see {@link #query(String)}.
     *
     * @param text the query
     * @param parameters the values of {@code :name} by name, which are values of {@link Record}
     * @return its rows, which the caller closes
     * @throws InvalidRequestException with the position in the query, if it does not match the classes of the space
     */
    public Rows query(String text, Map<String, ?> parameters) {
        return query(text, parameters, false);
    }

    private Rows query(String text, Map<String, ?> parameters, boolean explain) {
        MessageWriter request = TransactionMessages.writeQuery(text, parameters).bool(explain);
        return Rows.open(handle, Operation.QUERY, request, explain);
    }

    /**
     * Runs a query and returns its steps.
     *
     * @param text the query
     * @return the steps
     * @throws InvalidRequestException with the position in the query, if it does not match the classes of the space
     */
    public Explanation explain(String text) {
        return explain(text, Map.of());
    }

    /**
     * Runs a query with parameters and returns its steps.
     *
     * @param text the query
     * @param parameters the values of {@code :name} by name, which are values of {@link Record}
     * @return the steps
     * @throws InvalidRequestException with the position in the query, if it does not match the classes of the space
     */
    public Explanation explain(String text, Map<String, ?> parameters) {
        try (Rows rows = query(text, parameters, true)) {
            return rows.explain();
        }
    }

    // ------------------------------------------------------------------------------------------ bytes of blobs

    /**
     * Reads the bytes of a blob outside of transactions, wherever they are.
     *
     * @param oid the blob
     * @return the stream, which fetches 1 MiB at once and in advance. Its methods throw {@link IOException} with a
     *     {@link MortarException} as its cause: {@link NotFoundException} if there is no such blob,
     *     {@link ConflictException} if it has changed since the first byte was read
     */
    public InputStream read(Oid oid) {
        return new ContentInputStream(handle, Objects.requireNonNull(oid), 0, null);
    }

    /**
     * Reads a range of the bytes of a blob outside of transactions; see {@link #read(Oid)}.
     *
     * @param oid the blob
     * @param offset the offset of the first byte
     * @param end the offset behind the last byte; the blob may end before it
     * @return the stream
     */
    public InputStream read(Oid oid, long offset, long end) {
        MessageWriter.requireNotNegative(offset, "an offset");
        MessageWriter.requireNotNegative(end, "an offset");
        return new ContentInputStream(handle, Objects.requireNonNull(oid), offset, end);
    }

    /**
     * Appends bytes to a blob in a transaction of its own. Appends to one blob do not conflict with each other.
     *
     * @param oid the blob
     * @param bytes the bytes
     * @return the offset at which they are
     * @throws NotFoundException if there is no such blob
     */
    public long append(Oid oid, byte[] bytes) {
        MessageWriter request = new MessageWriter(bytes.length + 32).oid(oid).bytes(bytes);
        return handle.call(Operation.APPEND, request, MessageReader::u64);
    }

    /**
     * Uploads all bytes of a stream to a logical node that the client chooses; see {@link #upload(InputStream, int)}.
     *
     * @param source the stream, which the caller closes
     * @return the bytes
     * @throws IOException if the stream fails, or, with a {@link MortarException} as its cause, the upload
     */
    public StagedContent upload(InputStream source) throws IOException {
        return upload(source, contentOutput());
    }

    /**
     * Uploads all bytes of a stream, in bounded memory. A transaction makes them the content of an object:
     * {@link Transaction#createBlob(StagedContent)}, {@link Transaction#putContent}.
     *
     * @param source the stream, which the caller closes
     * @param node the logical node where the object is, or will be
     * @return the bytes
     * @throws IOException if the stream fails, or, with a {@link MortarException} as its cause, the upload
     */
    public StagedContent upload(InputStream source, int node) throws IOException {
        return upload(source, contentOutput(node));
    }

    private static StagedContent upload(InputStream source, ContentOutputStream destination) throws IOException {
        try (destination) {
            source.transferTo(destination);
            return destination.finish();
        }
    }

    /**
     * Begins an upload to a logical node that the client chooses.
     *
     * @return the stream that takes the bytes, which the caller closes
     */
    public ContentOutputStream contentOutput() {
        return contentOutput((Integer) null);
    }

    /**
     * Begins an upload to a logical node.
     *
     * @param node the logical node where the object is, or will be
     * @return the stream that takes the bytes, which the caller closes
     */
    public ContentOutputStream contentOutput(int node) {
        return contentOutput((Integer) node);
    }

    private ContentOutputStream contentOutput(Integer node) {
        MessageWriter request = new MessageWriter().optional(node, MessageWriter::u32);
        return new ContentOutputStream(handle, handle.open(Operation.WRITER, request, "upload"));
    }

    // ------------------------------------------------------------------------------------------ classes and indexes

    /**
     * Reads the classes and indexes of the space.
     *
     * @return the schema
     */
    public Schema schema() {
        return handle.call(Operation.SCHEMA, null, Schema::read);
    }

    /**
     * Creates the classes that do not exist yet. A class that exists with the same parent and fields stays as it is.
     *
     * @param classes the classes, which may refer to each other; at most 40
     * @throws AlreadyExistsException if a class exists and differs: {@link #evolve} it. No class is created then
     * @throws InvalidRequestException for a class that is not possible
     */
    public void define(ClassDefinition... classes) {
        define(List.of(classes));
    }

    /**
     * Creates classes; see {@link #define(ClassDefinition...)}.
     *
     * @param classes the classes, which may refer to each other; at most 40
     * @throws AlreadyExistsException if a class exists and differs: {@link #evolve} it. No class is created then
     * @throws InvalidRequestException for a class that is not possible
     */
    public void define(List<ClassDefinition> classes) {
        handle.call(Operation.DEFINE, new MessageWriter().list(classes, (out, each) -> each.write(out)));
    }

    /**
     * Changes a class. No record is rewritten.
     *
     * @param className the name of the class
     * @param steps the changes, which are made together
     * @throws NotFoundException if there is no such class
     * @throws InvalidRequestException for a change that old records do not permit; nothing is changed then
     */
    public void evolve(String className, EvolutionStep... steps) {
        evolve(className, List.of(steps));
    }

    /**
     * Changes a class; see {@link #evolve(String, EvolutionStep...)}.
     *
     * @param className the name of the class
     * @param steps the changes, which are made together
     * @throws NotFoundException if there is no such class
     * @throws InvalidRequestException for a change that old records do not permit; nothing is changed then
     */
    public void evolve(String className, List<EvolutionStep> steps) {
        handle.call(
                Operation.EVOLVE, new MessageWriter().string(className).list(steps, (out, step) -> step.write(out)));
    }

    /**
     * Creates an index, which is built in the background: {@link SchemaIndex#ready} tells when queries use it. With a
     * unique index it takes until the values of all objects that exist are entered; {@link #schema} continues if that
     * was interrupted.
     *
     * @param index the index
     * @throws NotFoundException if there is no such class or field
     * @throws AlreadyExistsException if there is an index of this name
     */
    public void createIndex(IndexDefinition index) {
        MessageWriter request = new MessageWriter();
        index.write(request);
        handle.call(Operation.CREATE_INDEX, request);
    }

    /**
     * Removes an index.
     *
     * @param name the name of the index
     * @throws NotFoundException if there is no such index
     */
    public void removeIndex(String name) {
        handle.call(Operation.REMOVE_INDEX, new MessageWriter().string(name));
    }

    /**
     * Removes a class that has no objects, no subclass, no index, and no field of another class that refers to it.
     *
     * @param name the name of the class
     * @throws NotFoundException if there is no such class
     * @throws InvalidRequestException if something needs the class
     */
    public void removeClass(String name) {
        handle.call(Operation.REMOVE_CLASS, new MessageWriter().string(name));
    }

    // ------------------------------------------------------------------------------------------ events and the end

    /**
     * Subscribes to events of the space: bricks fail and recover, the space stops and resumes, this client loses its
     * peer server. The first events tell the current status.
     *
     * @return the events, which the caller closes
     */
    public Events events() {
        return new Events(handle.open(Operation.EVENTS, null, "subscription to events"));
    }

    /**
     * Watches objects: {@link Watch#next} waits until one of them has changed. The client keeps copies of them, and the
     * messages that keep these copies current report the changes: nothing is polled. A change by any client after this
     * returns is noticed.
     *
     * @param objects the objects; one that does not exist changes when it is created
     * @return the watch, which the caller closes
     * @throws InvalidRequestException if an object is of another space
     */
    public Watch watch(Collection<Oid> objects) {
        MessageWriter request = new MessageWriter().list(objects, MessageWriter::oid);
        return new Watch(handle.open(Operation.WATCH, request, "watch"));
    }

    /**
     * Closes the client: its calls fail, its transactions are aborted, and its locks and copies are released. If it was
     * opened by {@link #open(Path)} or {@link #inMemory()}, this waits until the servers in this process have ended.
     *
     * @throws MortarException if the directory cannot be closed; the client is closed all the same
     */
    @Override
    public void close() {
        if (isClosing.compareAndSet(false, true)) {
            try {
                handle.call(Operation.SHUTDOWN, null);
            } finally {
                handle.close();
            }
        }
    }
}
