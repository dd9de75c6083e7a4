package io.mortar;

/**
 * The store has no room, in memory or on disk: make room and try again. Nothing was changed.
 *
 * @see ErrorKind#FULL
 */
public final class FullException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public FullException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public FullException(String message, Throwable cause) {
        super(ErrorKind.FULL, message, cause);
    }
}
