package io.mortar.histories;

/** What a client does with a persistence API, one transaction at a time. Each client has its own session of an API. */
interface Session extends AutoCloseable {
    /** Begins a transaction. */
    void begin(Request request);

    /**
     * Finds an object by its identity or by a query, as the transaction was requested.
     *
     * @param oid the text of its identifier
     * @param isRead whether the transaction only reads it
     */
    <T> T find(Class<T> type, String key, String oid, boolean isRead);

    void commit();

    /** Ends a transaction that has failed. */
    void rollBack();

    /** Describes an exception of this session. */
    Failure describe(RuntimeException error);

    @Override
    void close();
}
