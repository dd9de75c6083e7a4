package io.mortar;

/**
 * The space is stopped by its failure policy while a brick is unreachable: wait until it continues. Nothing was
 * changed.
 *
 * @see ErrorKind#STOPPED
 */
public final class StoppedException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public StoppedException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public StoppedException(String message, Throwable cause) {
        super(ErrorKind.STOPPED, message, cause);
    }
}
