package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@RequiresLibrary
@Timeout(60)
class EventsTest {
    private static Event await(Events events, Event.Kind kind) {
        Event event = events.next().orElseThrow();
        while (event.kind() != kind) {
            event = events.next().orElseThrow();
        }
        return event;
    }

    @Test
    void firstEventsTellTheStatus() {
        try (Client client = Client.inMemory();
                Events events = client.events()) {
            client.schema();
            Event connected = await(events, Event.Kind.CONNECTED);
            assertFalse(connected.text().isEmpty());
            assertEquals(connected.text(), connected.toString());
            client.define(ClassDefinition.builder("New")
                    .required("a", FieldType.INT64)
                    .build());
            await(events, Event.Kind.SCHEMA_CHANGED);
        }
    }

    @Test
    void threadThatWaitsReturnsWhenTheEventsAreClosed() throws Exception {
        try (Client client = Client.inMemory()) {
            client.schema();
            Events events = client.events();
            await(events, Event.Kind.CONNECTED);
            AtomicReference<Optional<Event>> last = new AtomicReference<>();
            Thread reader = new Thread(() -> last.set(lastOf(events)));
            reader.start();
            while (reader.getState() != Thread.State.WAITING) {
                Thread.sleep(1);
            }
            events.close();
            reader.join();
            assertEquals(Optional.empty(), last.get());
            assertThrows(InvalidRequestException.class, events::next);
        }
    }

    @Test
    void threadThatWaitsReturnsWhenTheClientIsClosed() throws Exception {
        Client client = Client.inMemory();
        client.schema();
        Events events = client.events();
        await(events, Event.Kind.CONNECTED);
        CompletableFuture<Optional<Event>> last = CompletableFuture.supplyAsync(() -> lastOf(events));
        client.close();
        assertEquals(Optional.empty(), last.get(30, TimeUnit.SECONDS));
        events.close();
    }

    /** Reads events until there is none. */
    private static Optional<Event> lastOf(Events events) {
        Optional<Event> event = events.next();
        while (event.isPresent()) {
            event = events.next();
        }
        return event;
    }
}
