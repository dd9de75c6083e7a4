package io.mortar;

import java.lang.ref.Reference;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;

/**
 * A stream of the native library whose next element may never come. A thread that waits for it returns when another one
 * closes the stream.
 */
final class Subscription implements AutoCloseable {
    private final NativeHandle handle;
    private final Operation next;
    /** The reply of a call that {@link #close} has ended. */
    private final byte[] replyWhenClosed;
    /** Held while a thread waits, so that elements are returned in order. */
    private final ReentrantLock reading = new ReentrantLock();

    Subscription(NativeHandle handle, Operation next, byte[] replyWhenClosed) {
        this.handle = handle;
        this.next = next;
        this.replyWhenClosed = replyWhenClosed;
    }

    /** Waits for the next element. */
    <T> T next(Function<MessageReader, T> read) {
        reading.lock();
        try {
            // Closing the handle ends the call, with an error: then the reply is the one of a closed stream.
            byte[] reply = PendingCalls.await(handle.start(next));
            return MessageReader.read(handle.isClosed() ? replyWhenClosed : LostReply.require(next, reply), read);
        } finally {
            reading.unlock();
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public void close() {
        handle.close();
    }
}
