package io.mortar;

/**
 * Stored data is damaged. The message names what is lost and what can be done.
 *
 * @see ErrorKind#CORRUPT
 */
public final class CorruptException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public CorruptException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public CorruptException(String message, Throwable cause) {
        super(ErrorKind.CORRUPT, message, cause);
    }
}
