package io.mortar.jukebox.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.javalin.http.Context;
import io.javalin.http.sse.SseClient;
import io.javalin.json.JavalinJackson;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.HttpServletResponse;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class EventStreamTest {
    private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
    private final CountDownLatch began = new CountDownLatch(1);
    private final CountDownLatch reads = new CountDownLatch(1);
    private final EventStream events = new EventStream(new SseClient(context(response())));

    /** A browser that reads nothing behind the first byte until {@code reads} is open. */
    private HttpServletResponse response() {
        ServletOutputStream out = new ServletOutputStream() {
            @Override
            public void write(int each) {
                sent.write(each);
                began.countDown();
                await(reads);
            }

            @Override
            public boolean isReady() {
                return true;
            }

            @Override
            public void setWriteListener(WriteListener listener) {
                throw new UnsupportedOperationException();
            }
        };
        return fake(HttpServletResponse.class, Map.of("getOutputStream", out));
    }

    private static Context context(HttpServletResponse response) {
        return fake(Context.class, Map.of("res", response, "jsonMapper", new JavalinJackson()));
    }

    /** An object whose methods return these values, or null. */
    private static <T> T fake(Class<T> type, Map<String, Object> results) {
        return type.cast(Proxy.newProxyInstance(
                type.getClassLoader(),
                new Class<?>[] {type},
                (self, method, arguments) -> results.get(method.getName())));
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(10, TimeUnit.SECONDS));
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    @Test
    void a_heartbeat_does_not_wait_for_an_event_nor_interrupt_it() throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            Future<?> event = other.submit(() -> events.send("changed", List.of("library")));
            await(began);
            events.sendHeartbeat();
            assertEquals("e", sent.toString(StandardCharsets.UTF_8));
            reads.countDown();
            event.get();
            events.sendHeartbeat();
            assertEquals(
                    "event: changed\ndata: [\"library\"]\n\n:",
                    sent.toString(StandardCharsets.UTF_8).strip());
        } finally {
            other.shutdown();
        }
    }
}
