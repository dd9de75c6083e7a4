package io.mortar;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Operations that were started and whose replies have not arrived.
 *
 * <p>A virtual thread that waited within the native library would occupy its carrier thread. So its operations are
 * started here, and the thread parks until one daemon platform thread has received the reply.
 */
final class PendingCalls {
    private static final System.Logger LOGGER = System.getLogger(PendingCalls.class.getName());
    private static final Map<Long, CompletableFuture<byte[]>> CALLS = new ConcurrentHashMap<>();
    private static final AtomicLong LAST_CALL = new AtomicLong();

    /** Why no reply arrives any more; null as long as replies arrive. */
    private static volatile MortarException ended;

    static {
        Thread receiver = new Thread(PendingCalls::receive, "mortar-replies");
        receiver.setDaemon(true);
        receiver.start();
    }

    private PendingCalls() {}

    /** Starts an operation. The future completes with its reply. */
    static CompletableFuture<byte[]> start(long handle, Operation operation, byte[] request) {
        long call = LAST_CALL.incrementAndGet();
        CompletableFuture<byte[]> reply = new CompletableFuture<>();
        CALLS.put(call, reply);
        try {
            Native.start(call, handle, operation.code(), request);
        } catch (Throwable error) {
            CALLS.remove(call);
            throw error;
        }
        // The receiver fails the calls that it finds when it ends; this one may have come later.
        if (ended != null) {
            fail(call, ended);
        }
        return reply;
    }

    /** Waits for a reply. An interruption does not end the wait; the thread stays interrupted. */
    static byte[] await(CompletableFuture<byte[]> reply) {
        try {
            return reply.join();
        } catch (CompletionException failed) {
            throw new InternalException(failed.getCause().getMessage(), failed.getCause());
        }
    }

    private static void receive() {
        while (ended == null) {
            try {
                byte[] replies = Native.completed();
                if (replies == null) {
                    ended = new InternalException(
                            "the native library of Mortar has ended, and so have the calls in it");
                    failAll(ended);
                } else {
                    complete(new MessageReader(replies));
                }
            } catch (Throwable error) {
                // The replies are lost, such as those for which there is no memory. It is not known whose they were.
                LOGGER.log(System.Logger.Level.ERROR, "replies of the native library of Mortar are lost", error);
                failAll(new InternalException(
                        "the reply of the native library of Mortar may be lost: " + error, error));
            }
        }
    }

    private static void failAll(MortarException why) {
        CALLS.keySet().forEach(call -> fail(call, why));
    }

    private static void complete(MessageReader replies) {
        for (int left = replies.u32(); left > 0; left--) {
            CompletableFuture<byte[]> call = CALLS.remove(replies.u64());
            byte[] reply = replies.bytes();
            if (call != null) {
                call.complete(reply);
            }
        }
        replies.end();
    }

    private static void fail(Long call, MortarException why) {
        CompletableFuture<byte[]> reply = CALLS.remove(call);
        if (reply != null) {
            reply.completeExceptionally(why);
        }
    }
}
