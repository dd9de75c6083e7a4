package io.mortar;

/**
 * The functions of the native library, {@code crates/java}. {@link NativeLibrary#load} has to be called first.
 *
 * <p>A handle is a number that the library gives out once: a client, a transaction, a stream. The number of a handle
 * that was released, or that never existed, is an error of the call. Requests and replies are encoded as
 * {@link MessageWriter} and {@link MessageReader} do it; a reply begins with whether it is an error.
 */
final class Native {
    private Native() {}

    /**
     * Runs an operation on a handle and waits for its reply. The handle of an operation without one is 0. Returns null
     * if the Java heap has no room for the reply.
     */
    static native byte[] call(long handle, int operation, byte[] request);

    /** Begins an operation, whose reply {@link #completed} returns with the number {@code call}. */
    static native void start(long call, long handle, int operation, byte[] request);

    /**
     * Waits for replies of operations that were started: a list of the number of the call and the reply, which may be
     * {@link LostReply#NO_MEMORY}. Returns an empty array if none will come, and null if the Java heap has no room at
     * all now: call it again. Only one thread calls it.
     */
    static native byte[] completed();

    /** Releases a handle, once or more often, without waiting: aborts an open transaction, closes a client. */
    static native void release(long handle);

    /** The number of handles that are not released. */
    static native long handles();
}
