package io.mortar.jukebox.model;

import java.util.Set;

/** Waits for changes of objects, by any instance of the service. It begins when it is made. */
public interface ChangeWatch extends AutoCloseable {
    /**
     * Waits until objects have changed since they were returned last.
     *
     * @return their identifiers; none if the watch was closed
     */
    Set<String> next();

    /** Ends the watch; {@link #next} returns. */
    @Override
    void close();
}
