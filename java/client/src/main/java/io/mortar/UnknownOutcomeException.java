package io.mortar;

/**
 * The connection broke after a commit was sent, so its outcome is unknown: {@link Client#outcome} finds it out, or read
 * what the transaction has written.
 *
 * @see ErrorKind#UNKNOWN
 */
public final class UnknownOutcomeException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public UnknownOutcomeException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public UnknownOutcomeException(String message, Throwable cause) {
        super(ErrorKind.UNKNOWN, message, cause);
    }
}
