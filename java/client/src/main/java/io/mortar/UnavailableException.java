package io.mortar;

/**
 * The server is unavailable: try again. Nothing was changed.
 *
 * @see ErrorKind#UNAVAILABLE
 */
public final class UnavailableException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public UnavailableException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public UnavailableException(String message, Throwable cause) {
        super(ErrorKind.UNAVAILABLE, message, cause);
    }
}
