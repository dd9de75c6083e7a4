package io.mortar;

import java.util.List;

/**
 * Objects whose changes are waited for: {@link Client#watch}.
 *
 * <pre>{@code
 * try (Watch watch = client.watch(List.of(settings))) {
 *     while (true) {
 *         apply(client.get(settings).orElseThrow().record());
 *         watch.next();
 *     }
 * }
 * }</pre>
 */
public final class Watch implements AutoCloseable {
    /** A success with an empty list. */
    private static final byte[] NO_OBJECTS = {0, 0, 0, 0, 0};

    private final Subscription subscription;

    Watch(NativeHandle handle) {
        subscription = new Subscription(handle, Operation.WATCH_NEXT, NO_OBJECTS);
    }

    /**
     * Waits until objects differ from what they were when this returned them last, or when the watch began. Several
     * changes of one object may be returned as one, and a change that is undone at once may not be noticed. Changes of
     * the entries of a set or a directory do not change the object itself.
     *
     * @return the objects, created, changed or deleted; none if another thread calls {@link #close} meanwhile
     * @throws InvalidRequestException if the watch or the client is closed
     * @throws StoppedException while the space is stopped. The watch may be used further after an error, and misses
     *     nothing
     */
    public List<Oid> next() {
        return subscription.next(reply -> reply.list(MessageReader::oid));
    }

    /** Ends the watch. A thread that waits for a change returns. */
    @Override
    public void close() {
        subscription.close();
    }
}
