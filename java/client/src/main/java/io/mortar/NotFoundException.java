package io.mortar;

/**
 * Something that the request names does not exist. Nothing was changed.
 *
 * @see ErrorKind#NOT_FOUND
 */
public final class NotFoundException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public NotFoundException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public NotFoundException(String message, Throwable cause) {
        super(ErrorKind.NOT_FOUND, message, cause);
    }
}
