package io.mortar;

import java.util.Arrays;

/** Replies that do not arrive, although the operation may have been performed. */
final class LostReply {
    /** Stands for a reply for which the Java heap has no room; {@code crates/java} has the same. */
    static final byte[] NO_MEMORY = {2};
    /** Stands for the reply of an operation that the native library does not end any more. */
    static final byte[] ENDED = {3};

    private LostReply() {}

    /**
     * Returns the reply of an operation, if it has arrived.
     *
     * @param reply the reply; null as {@link #NO_MEMORY}
     * @throws UnknownOutcomeException if it is lost, and the operation may have changed the space
     * @throws OutOfMemoryError if there is no room for it
     * @throws InternalException if the native library has ended
     */
    static byte[] require(Operation operation, byte[] reply) {
        boolean lacksRoom = reply == null || Arrays.equals(reply, NO_MEMORY);
        if (!lacksRoom && !Arrays.equals(reply, ENDED)) {
            return reply;
        }
        String why = lacksRoom
                ? "the Java heap has no room for the reply of the native library of Mortar"
                : "the native library of Mortar has ended";
        if (operation.changesTheSpace()) {
            throw new UnknownOutcomeException(
                    why + ": whether the change was made is not known; read what it was to change");
        }
        if (lacksRoom) {
            throw new OutOfMemoryError(why + ": give it more memory, or read less at once");
        }
        throw new InternalException(why + ", and so have the calls in it");
    }
}
