package io.mortar;

import java.util.Optional;

/**
 * The events of a client's space, as they happen: {@link Client#events}.
 *
 * <p>Events arrive in order. The first ones tell the current status. The client buffers the last 256 events; a reader
 * that falls further behind gets {@link Event.Kind#MISSED}, and then the current status.
 */
public final class Events implements AutoCloseable {
    /** A success without an event. */
    private static final byte[] NO_EVENT = {0, 0};

    private final Subscription subscription;

    Events(NativeHandle handle) {
        subscription = new Subscription(handle, Operation.EVENTS_NEXT, NO_EVENT);
    }

    /**
     * Waits for the next event.
     *
     * @return the event; empty when the client is closed, and if another thread calls {@link #close} meanwhile
     * @throws InvalidRequestException if these events were closed
     */
    public Optional<Event> next() {
        return subscription.next(reply -> reply.maybe(Event::read));
    }

    /** Ends the subscription. A thread that waits for an event returns without one. */
    @Override
    public void close() {
        subscription.close();
    }
}
