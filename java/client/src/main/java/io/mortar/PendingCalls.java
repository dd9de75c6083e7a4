package io.mortar;

import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Operations that were started and whose replies have not arrived.
 *
 * <p>A virtual thread that waited within the native library would occupy its carrier thread. So its operations are
 * started here, and the thread parks until one daemon platform thread has received the reply.
 *
 * <p>Each operation gets its reply or a {@link LostReply}, also while the Java heap has no room: the receiver then
 * waits for room, and only a large reply is lost.
 */
final class PendingCalls {
    private static final System.Logger LOGGER = System.getLogger(PendingCalls.class.getName());
    private static final Map<Long, CompletableFuture<byte[]>> CALLS = new ConcurrentHashMap<>();
    private static final AtomicLong LAST_CALL = new AtomicLong();
    /** A reply with at most this many bytes waits until the heap has room, such as the outcome of a commit. */
    private static final int SMALL_REPLY = 4 << 10;

    private static final long PAUSE_NANOS = 10_000_000;

    /** Whether no reply arrives any more. */
    private static volatile boolean ended;

    static {
        Thread receiver = new Thread(PendingCalls::receive, "mortar-replies");
        receiver.setDaemon(true);
        receiver.start();
    }

    private PendingCalls() {}

    /** Starts an operation. The future completes with its reply, or with a {@link LostReply}. */
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
        // The receiver completes the calls that it finds when it ends; this one may have come later.
        if (ended) {
            complete(call, LostReply.ENDED);
        }
        return reply;
    }

    /** Waits for a reply. An interruption does not end the wait; the thread stays interrupted. */
    static byte[] await(CompletableFuture<byte[]> reply) {
        return reply.join();
    }

    private static void receive() {
        try {
            byte[] replies = nextReplies();
            while (replies.length > 0) {
                completeEach(replies);
                replies = nextReplies();
            }
        } catch (RuntimeException malformed) {
            LOGGER.log(System.Logger.Level.ERROR, "replies of the native library of Mortar are lost", malformed);
        } finally {
            ended = true;
            CALLS.keySet().forEach(call -> completeOnce(call, LostReply.ENDED));
        }
    }

    /** Waits for replies, and until there is room for them; empty if none will come. */
    private static byte[] nextReplies() {
        byte[] replies = Native.completed();
        while (replies == null) {
            pause();
            replies = Native.completed();
        }
        return replies;
    }

    /** Completes calls with their replies. It allocates nothing but the replies, which may be all that has room. */
    private static void completeEach(byte[] replies) {
        int at = Integer.BYTES;
        for (int left = BigEndian.readInt(replies, 0); left > 0; left--) {
            long call = BigEndian.readLong(replies, at);
            int from = at + Long.BYTES + Integer.BYTES;
            int size = BigEndian.readInt(replies, at + Long.BYTES);
            at = from + Objects.checkIndex(size, replies.length - from + 1);
            complete(call, copy(replies, from, at));
        }
    }

    private static byte[] copy(byte[] replies, int from, int to) {
        while (true) {
            try {
                return Arrays.copyOfRange(replies, from, to);
            } catch (OutOfMemoryError full) {
                if (to - from > SMALL_REPLY) {
                    return LostReply.NO_MEMORY;
                }
                pause();
            }
        }
    }

    /** Completes a call, which stays registered until that is done. */
    private static void completeOnce(Long call, byte[] reply) {
        CompletableFuture<byte[]> waiting = CALLS.get(call);
        if (waiting != null) {
            waiting.complete(reply);
            CALLS.remove(call);
        }
    }

    private static void complete(long call, byte[] reply) {
        while (true) {
            try {
                completeOnce(call, reply);
                return;
            } catch (OutOfMemoryError full) {
                pause();
            }
        }
    }

    private static void pause() {
        LockSupport.parkNanos(PAUSE_NANOS);
    }
}
