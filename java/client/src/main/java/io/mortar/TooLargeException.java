package io.mortar;

/**
 * Something is larger than a limit: divide it, or stream it. Nothing was changed.
 *
 * @see ErrorKind#TOO_LARGE
 */
public final class TooLargeException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public TooLargeException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public TooLargeException(String message, Throwable cause) {
        super(ErrorKind.TOO_LARGE, message, cause);
    }
}
