package io.mortar;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * A handle of the native library: a client, a transaction, a stream. Threads may share it.
 *
 * <p>It is released by {@link #close}, or after it became unreachable. It keeps the handle that it was opened from
 * reachable, because a client that is released ends all that was opened from it.
 */
final class NativeHandle implements AutoCloseable {
    /** The handle of operations without one. */
    private static final long NONE = 0;

    private static final Cleaner CLEANER = Cleaner.create();

    private final long number;
    private final NativeHandle parent;
    private final String what;
    private final Cleaner.Cleanable release;
    private volatile boolean isClosed;

    /**
     * @param parent the handle that this one was opened from, or null
     * @param what what it is, for messages: "transaction"
     */
    NativeHandle(long number, NativeHandle parent, String what) {
        this.number = number;
        this.parent = parent;
        this.what = what;
        // The action must not refer to this object, which would stay reachable.
        release = CLEANER.register(this, () -> Native.release(number));
    }

    /** Runs an operation that needs no handle. */
    static <T> T callWithoutHandle(Operation operation, MessageWriter request, Function<MessageReader, T> read) {
        return MessageReader.read(run(NONE, operation, request), read);
    }

    /**
     * Runs an operation and waits for its reply.
     *
     * @param request its request, or null for one without content
     * @throws InvalidRequestException if the handle is closed
     * @throws MortarException the error of the operation; {@link UnknownOutcomeException} if the reply of one that
     *     changes the space is lost
     * @throws OutOfMemoryError if the Java heap has no room for another reply
     */
    <T> T call(Operation operation, MessageWriter request, Function<MessageReader, T> read) {
        checkOpen();
        try {
            return MessageReader.read(run(number, operation, request), read);
        } finally {
            // Otherwise the handle could be released while the operation runs.
            Reference.reachabilityFence(this);
        }
    }

    /** Runs an operation whose reply has no content. */
    void call(Operation operation, MessageWriter request) {
        call(operation, request, MessageReader::nothing);
    }

    /** Runs an operation that opens a handle. */
    NativeHandle open(Operation operation, MessageWriter request, String opened) {
        return call(operation, request, reply -> new NativeHandle(reply.u64(), this, opened));
    }

    /** Starts an operation. The caller keeps this object reachable until the reply has arrived. */
    CompletableFuture<byte[]> start(Operation operation) {
        checkOpen();
        return PendingCalls.start(number, operation, MessageWriter.bytesOf(null));
    }

    private static byte[] run(long handle, Operation operation, MessageWriter request) {
        byte[] bytes = MessageWriter.bytesOf(request);
        byte[] reply = operation.waits() && VirtualThreads.isCurrent()
                ? PendingCalls.await(PendingCalls.start(handle, operation, bytes))
                : Native.call(handle, operation.code(), bytes);
        return LostReply.require(operation, reply);
    }

    /**
     * The number, for requests that name a second handle. The caller keeps this object reachable during the request.
     */
    long number() {
        checkOpen();
        return number;
    }

    /** The handle that this one was opened from. */
    NativeHandle parent() {
        return parent;
    }

    boolean isClosed() {
        return isClosed;
    }

    private void checkOpen() {
        if (isClosed) {
            throw new InvalidRequestException("the " + what + " is closed");
        }
    }

    /** Releases the handle, if it is not released. It does not wait. */
    @Override
    public void close() {
        isClosed = true;
        release.clean();
    }
}
