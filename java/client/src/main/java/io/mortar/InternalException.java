package io.mortar;

/**
 * A bug in Mortar: please report it.
 *
 * @see ErrorKind#INTERNAL
 */
public final class InternalException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public InternalException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public InternalException(String message, Throwable cause) {
        super(ErrorKind.INTERNAL, message, cause);
    }
}
