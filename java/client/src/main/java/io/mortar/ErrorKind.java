package io.mortar;

/** What the caller should do about a {@link MortarException}. */
public enum ErrorKind {
    /** The request is invalid: correct it. Nothing was changed. */
    INVALID(1),
    /** Something that the request names does not exist. Nothing was changed. */
    NOT_FOUND(2),
    /** Something is larger than a limit: divide it, or stream it. Nothing was changed. */
    TOO_LARGE(3),
    /** The caller has no permission: log in, or ask for permission. */
    DENIED(4),
    /** The store has no room, in memory or on disk: make room and try again. Nothing was changed. */
    FULL(5),
    /** Stored data is damaged. The message names what is lost and what can be done. */
    CORRUPT(6),
    /** The server is unavailable: try again. Nothing was changed. */
    UNAVAILABLE(7),
    /** The connection broke after a commit was sent, so its outcome is unknown: read to find out. */
    UNKNOWN(8),
    /** The other side speaks another version, or lacks a feature: upgrade one of the two. */
    UNSUPPORTED(9),
    /** The operating system or a device failed, as the message says. */
    IO(10),
    /** A bug in Mortar: please report it. */
    INTERNAL(11),
    /** The transaction conflicts with another one: begin it again. Nothing was changed. */
    CONFLICT(12),
    /** The space is stopped by its failure policy while a brick is unreachable: wait until it continues. */
    STOPPED(13),
    /** An object, name or unique value exists already: use the existing one, or choose another. Nothing was changed. */
    EXISTS(14),
    /** The space would exceed its quota: delete something, or have the quota raised. Nothing was changed. */
    QUOTA_EXCEEDED(15);

    private final int code;

    ErrorKind(int code) {
        this.code = code;
    }

    /**
     * Returns whether the same call, or the whole transaction, may succeed if it is run again.
     *
     * @return true for {@link #CONFLICT}, {@link #UNAVAILABLE} and {@link #STOPPED}
     */
    public boolean isRetryable() {
        return this == CONFLICT || this == UNAVAILABLE || this == STOPPED;
    }

    int code() {
        return code;
    }

    /** The kind with this code. An unknown code, from a newer server, is {@link #INTERNAL}. */
    static ErrorKind ofCode(int code) {
        for (ErrorKind kind : values()) {
            if (kind.code == code) {
                return kind;
            }
        }
        return INTERNAL;
    }
}
