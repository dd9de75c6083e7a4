package io.mortar;

import java.util.Optional;

/**
 * The transaction conflicts with another one: begin it again. Nothing was changed.
 *
 * <p>{@link Client#transact} runs a transaction again by itself when its body throws this exception.
 *
 * @see ErrorKind#CONFLICT
 */
public final class ConflictException extends MortarException {
    private final Oid object;

    /**
     * Creates the exception.
     *
     * @param message what was wrong, where, and what to do
     */
    public ConflictException(String message) {
        this(message, null, null);
    }

    /**
     * Creates the exception with the object of the conflict and its cause.
     *
     * @param message what was wrong, where, and what to do
     * @param object the object that has changed, or that another transaction uses; null if it is not known
     * @param cause the cause, or null
     */
    public ConflictException(String message, Oid object, Throwable cause) {
        super(ErrorKind.CONFLICT, message, cause);
        this.object = object;
    }

    /**
     * Returns the object that has changed since it was read, or that another transaction uses.
     *
     * @return the object, if it is known
     */
    public Optional<Oid> object() {
        return Optional.ofNullable(object);
    }
}
