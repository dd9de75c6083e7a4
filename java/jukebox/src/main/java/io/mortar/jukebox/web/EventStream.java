package io.mortar.jukebox.web;

import io.javalin.http.sse.SseClient;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/** Sends the events and heartbeats of one page, one at a time: each of them is several writes to the same response. */
final class EventStream {
    private final SseClient client;
    private final Lock sending = new ReentrantLock();

    EventStream(SseClient client) {
        this.client = client;
    }

    /** Sends topics as an event. It has data, because browsers ignore an event without data. */
    void send(String event, Collection<String> topics) {
        sending.lock();
        try {
            client.sendEvent(event, List.copyOf(topics));
        } finally {
            sending.unlock();
        }
    }

    /**
     * Finds out whether the browser is gone, and keeps the connection from being idle. An event that is being sent does
     * that, too, so this does not wait for its end.
     */
    void sendHeartbeat() {
        if (sending.tryLock()) {
            try {
                client.sendComment("");
            } finally {
                sending.unlock();
            }
        }
    }

    boolean isOver() {
        return client.terminated();
    }

    void close() {
        client.close();
    }
}
