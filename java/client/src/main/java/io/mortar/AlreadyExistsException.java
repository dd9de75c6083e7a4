package io.mortar;

/**
 * An object, name or unique value exists already: use the existing one, or choose another. Nothing was changed.
 *
 * @see ErrorKind#EXISTS
 */
public final class AlreadyExistsException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public AlreadyExistsException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public AlreadyExistsException(String message, Throwable cause) {
        super(ErrorKind.EXISTS, message, cause);
    }
}
