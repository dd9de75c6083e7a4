package io.mortar;

/**
 * The space would exceed its quota: delete something, or have the quota raised. Nothing was changed.
 *
 * @see ErrorKind#QUOTA_EXCEEDED
 */
public final class QuotaExceededException extends MortarException {
    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public QuotaExceededException(String message) {
        this(message, null);
    }

    /**
     * Creates the exception with its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param cause the cause, or null
     */
    public QuotaExceededException(String message, Throwable cause) {
        super(ErrorKind.QUOTA_EXCEEDED, message, cause);
    }
}
