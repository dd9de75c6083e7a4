package io.mortar;

import java.util.List;

/**
 * The rows of a query, as they arrive. The servers compute only the rows that are read, and those of one message more.
 *
 * <pre>{@code
 * try (Rows rows = client.query("from Person where age < 30 order by name")) {
 *     while (rows.hasNext()) {
 *         Row row = rows.next();
 *         System.out.println(row.oid() + ": " + row.record());
 *     }
 * }
 * }</pre>
 *
 * <p>In a transaction, the rows are valid only if the transaction commits, as everything that it reads.
 *
 * <p>One thread reads rows at a time. They are closed at their end, or before by {@link #close}. A query that no
 * program reads for two minutes is ended by the server.
 */
public final class Rows extends Portions<Row> {
    /** Rows that are fetched at once. */
    private static final int PORTION = 256;

    private final List<String> columns;
    /** Whether the steps are wanted: then the handle is needed behind the last row. */
    private final boolean isExplained;

    private Rows(NativeHandle handle, List<String> columns, boolean isExplained) {
        super(handle, Operation.ROWS_NEXT, in -> Row.read(in, columns));
        this.columns = columns;
        this.isExplained = isExplained;
    }

    /** Sends a query of a client or a transaction. */
    static Rows open(NativeHandle parent, Operation query, MessageWriter request, boolean isExplained) {
        return parent.call(query, request, reply -> {
            NativeHandle handle = new NativeHandle(reply.u64(), parent, "result of the query");
            return new Rows(handle, reply.list(MessageReader::string), isExplained);
        });
    }

    @Override
    MessageWriter nextRequest() {
        return new MessageWriter().u32(PORTION);
    }

    @Override
    void handleEnd() {
        if (!isExplained) {
            super.handleEnd();
        }
    }

    /**
     * Returns the names of the columns.
     *
     * @return the names, unmodifiable; empty if rows are whole objects
     */
    public List<String> columns() {
        return columns;
    }

    /** Reads all rows, and returns the steps of the query. */
    Explanation explain() {
        while (hasNext()) {
            next();
        }
        return handle().call(Operation.ROWS_EXPLANATION, null, reply -> reply.optional(Explanation::read));
    }
}
