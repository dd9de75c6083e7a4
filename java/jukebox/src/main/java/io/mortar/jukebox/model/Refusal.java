package io.mortar.jukebox.model;

/** A request that is not carried out. The message is for the person who made it. */
public final class Refusal extends RuntimeException {
    /** Why a request is refused, and the HTTP status that says so. */
    public enum Reason {
        INVALID(400),
        NOT_SIGNED_IN(401),
        FORBIDDEN(403),
        NOT_FOUND(404),
        /** The object to create exists. */
        EXISTS(409),
        /** The object has changed since the person saw it. */
        CHANGED(409),
        TOO_LARGE(413),
        UNSUPPORTED(415),
        TOO_MANY(429),
        UNAVAILABLE(503);

        private final int status;

        Reason(int status) {
            this.status = status;
        }

        public int status() {
            return status;
        }
    }

    private final Reason reason;

    public Refusal(Reason reason, String message) {
        super(message);
        this.reason = reason;
    }

    public Refusal(Reason reason, String message, Throwable cause) {
        super(message, cause);
        this.reason = reason;
    }

    public Reason reason() {
        return reason;
    }

    public static Refusal notFound(String what) {
        return new Refusal(Reason.NOT_FOUND, "there is no such " + what);
    }
}
