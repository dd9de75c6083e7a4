package io.mortar;

/**
 * The operating system or a device failed, as the message says.
 *
 * @see ErrorKind#IO
 */
public final class StoreIoException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public StoreIoException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public StoreIoException(String message, Throwable cause) {
        super(ErrorKind.IO, message, cause);
    }
}
