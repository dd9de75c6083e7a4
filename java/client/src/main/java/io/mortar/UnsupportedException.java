package io.mortar;

/**
 * The other side speaks another version, or lacks a feature: upgrade one of the two.
 *
 * @see ErrorKind#UNSUPPORTED
 */
public final class UnsupportedException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public UnsupportedException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public UnsupportedException(String message, Throwable cause) {
        super(ErrorKind.UNSUPPORTED, message, cause);
    }
}
