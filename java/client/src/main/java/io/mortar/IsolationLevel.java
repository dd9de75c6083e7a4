package io.mortar;

/** How a transaction reads, and what that guarantees. */
public enum IsolationLevel {
    /** It reads copies, which are validated at the commit: strictly serializable. The default. */
    OPTIMISTIC(0),
    /**
     * It reads copies as of one time in the recent past, and cannot write: serializable, and its end sends nothing.
     * Requires {@link ConnectOptions.Builder#snapshots}.
     */
    SNAPSHOT(1),
    /**
     * It locks objects at the bricks and reads their newest states: strictly serializable, and it waits where another
     * transaction would conflict.
     */
    LOCKS(2);

    private final int code;

    IsolationLevel(int code) {
        this.code = code;
    }

    int code() {
        return code;
    }
}
