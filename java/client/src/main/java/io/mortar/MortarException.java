package io.mortar;

/**
 * The error of a call of Mortar. The class says what the caller should do, and so does {@link #kind()}; the message
 * says what was wrong, where, and what to do.
 */
public abstract sealed class MortarException extends RuntimeException
        permits InvalidRequestException,
                NotFoundException,
                TooLargeException,
                AccessDeniedException,
                FullException,
                CorruptException,
                UnavailableException,
                UnknownOutcomeException,
                UnsupportedException,
                StoreIoException,
                InternalException,
                ConflictException,
                StoppedException,
                AlreadyExistsException,
                QuotaExceededException {
    private final ErrorKind kind;

    MortarException(ErrorKind kind, String message, Throwable cause) {
        super(message, cause);
        this.kind = kind;
    }

    /**
     * Returns what the caller should do about the error.
     *
     * @return the kind
     */
    public final ErrorKind kind() {
        return kind;
    }

    /**
     * Returns whether the same call, or the whole transaction, may succeed if it is run again.
     *
     * @return true for conflicts, and while a server is unavailable or the space is stopped
     */
    public final boolean isRetryable() {
        return kind.isRetryable();
    }

    /**
     * The exception of an error.
     *
     * @param object the object of a conflict, or null
     */
    static MortarException of(ErrorKind kind, String message, Oid object) {
        return switch (kind) {
            case INVALID -> new InvalidRequestException(message);
            case NOT_FOUND -> new NotFoundException(message);
            case TOO_LARGE -> new TooLargeException(message);
            case DENIED -> new AccessDeniedException(message);
            case FULL -> new FullException(message);
            case CORRUPT -> new CorruptException(message);
            case UNAVAILABLE -> new UnavailableException(message);
            case UNKNOWN -> new UnknownOutcomeException(message);
            case UNSUPPORTED -> new UnsupportedException(message);
            case IO -> new StoreIoException(message);
            case INTERNAL -> new InternalException(message);
            case CONFLICT -> new ConflictException(message, object, null);
            case STOPPED -> new StoppedException(message);
            case EXISTS -> new AlreadyExistsException(message);
            case QUOTA_EXCEEDED -> new QuotaExceededException(message);
        };
    }
}
