package io.mortar;

/**
 * The caller has no permission: log in, or ask for permission.
 *
 * @see ErrorKind#DENIED
 */
public final class AccessDeniedException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public AccessDeniedException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public AccessDeniedException(String message, Throwable cause) {
        super(ErrorKind.DENIED, message, cause);
    }
}
