package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Server-sent events as a test reads them. */
public final class ChangeStream implements AutoCloseable {
    private static final int LONGEST_SECONDS = 10;

    private final InputStream in;
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();

    ChangeStream(InputStream in) throws InterruptedException {
        this.in = in;
        Thread reader = new Thread(this::read, "events of a test");
        reader.setDaemon(true);
        reader.start();
        String first = next();
        assertTrue(first.startsWith("ready "), first);
    }

    private void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8))) {
            String event = "";
            String data = "";
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("event: ")) {
                    event = line.substring("event: ".length());
                } else if (line.startsWith("data: ")) {
                    data = line.substring("data: ".length());
                } else if (line.isEmpty()) {
                    // As in browsers, an event without data is none.
                    if (!data.isEmpty()) {
                        events.add(event + ' ' + data);
                    }
                    event = "";
                    data = "";
                }
            }
        } catch (IOException ended) {
            events.add("ended");
        }
    }

    /** The next event with its data. */
    public String next() throws InterruptedException {
        String event = events.poll(LONGEST_SECONDS, TimeUnit.SECONDS);
        assertNotNull(event, "no event in " + LONGEST_SECONDS + " s");
        return event;
    }

    @Override
    public void close() throws IOException {
        in.close();
    }
}
