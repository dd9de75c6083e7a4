package io.mortar;

/**
 * The operations of the native library. {@code crates/java} implements them; the codes and the encoding of requests and
 * replies are a contract between the two.
 */
enum Operation {
    // Without a handle.
    CONNECT(1, true),
    OPEN(2, true),
    IN_MEMORY(3, true),
    VALIDATE_RECORD(4, false),
    // Of a client.
    SHUTDOWN(10, true),
    BEGIN(11, false),
    ATTEMPTS(12, false),
    GET(13, true),
    PUT(14, true),
    READ_LATEST(15, true),
    RESOLVE(16, true),
    STAT(17, true),
    APPEND(18, true),
    MEMBERS(19, true),
    ENTRIES(20, true),
    NAMES_OF(21, true),
    COLLECTIONS_OF(22, true),
    TOTALS(23, true),
    QUERY(24, true),
    NAMES(25, false),
    OBJECTS(26, false),
    EVENTS(27, false),
    WRITER(28, false),
    READER(29, false),
    SCHEMA(30, true),
    DEFINE(31, true),
    EVOLVE(32, true),
    CREATE_INDEX(33, true),
    REMOVE_INDEX(34, true),
    REMOVE_CLASS(35, true),
    OUTCOME(36, true),
    NODES(37, false),
    WATCH(38, true),
    ENTRY(39, true),
    // Of the attempts of a transaction.
    ATTEMPT_BEGIN(40, false),
    ATTEMPT_END(41, true),
    // Of a transaction.
    T_ID(50, false),
    T_ROOT(51, false),
    T_GET(52, true),
    T_ALLOCATE(53, true),
    T_WRITE(54, true),
    T_CREATE(55, false),
    T_REAL_OIDS(56, false),
    T_COMMIT(57, true),
    T_CHECK(58, true),
    T_ABORT(59, false),
    T_QUERY(60, true),
    T_PREFETCH(61, true),
    T_RESOLVE(62, true),
    T_BIND(63, true),
    T_UNBIND(64, true),
    T_RENAME(65, true),
    T_CREATE_DIRECTORY(66, true),
    T_REMOVE_DIRECTORY(67, true),
    T_LIST(68, true),
    T_DELETE_WITH_NAMES(69, true),
    T_ADD_MEMBER(70, true),
    T_REMOVE_MEMBER(71, true),
    T_CONTAINS(72, true),
    T_MEMBERS(73, true),
    T_ENTRY(74, true),
    T_PUT_ENTRY(75, true),
    T_ADD_ENTRY(76, true),
    T_REMOVE_ENTRY(77, true),
    T_ENTRIES(78, true),
    T_COUNT(79, true),
    T_CREATE_COLLECTION(80, false),
    T_READ_AT(81, true),
    T_WRITE_AT(82, true),
    T_APPEND(83, true),
    T_TRUNCATE(84, true),
    T_ZERO(85, true),
    T_APPEND_OFFSETS(86, false),
    T_CREATE_BLOB_FROM(87, false),
    T_PUT_CONTENT(88, true),
    T_SET_ATTRIBUTE(89, true),
    T_SIZE(90, true),
    // Of streams.
    ROWS_NEXT(100, true),
    ROWS_EXPLANATION(101, false),
    NAMES_NEXT(102, true),
    OBJECTS_NEXT(103, true),
    EVENTS_NEXT(104, true),
    WRITER_WRITE(105, true),
    WRITER_FINISH(106, true),
    READER_NEXT(107, true),
    WATCH_NEXT(108, true);

    private final int code;
    private final boolean waits;

    Operation(int code, boolean waits) {
        this.code = code;
        this.waits = waits;
    }

    int code() {
        return code;
    }

    /** Whether the operation may have a durable effect: then a lost reply leaves its outcome unknown. */
    boolean changesTheSpace() {
        return switch (this) {
            case PUT, APPEND, DEFINE, EVOLVE, CREATE_INDEX, REMOVE_INDEX, REMOVE_CLASS, ATTEMPT_END, T_COMMIT -> true;
            default -> false;
        };
    }

    /** Whether the operation may wait for a server. A virtual thread waits for it without its carrier thread. */
    boolean waits() {
        return waits;
    }
}
