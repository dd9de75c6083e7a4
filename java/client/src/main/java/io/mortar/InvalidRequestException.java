package io.mortar;

/**
 * The request is invalid: correct it. Nothing was changed.
 *
 * @see ErrorKind#INVALID
 */
public final class InvalidRequestException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public InvalidRequestException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public InvalidRequestException(String message, Throwable cause) {
        super(ErrorKind.INVALID, message, cause);
    }
}
