package io.mortar.jukebox.model;

import java.util.Collection;

/**
 * Where a jukebox keeps everything. Threads may share it, and instances of the service share what it holds.
 *
 * <p>Each method is one transaction. A store that cannot be reached is a {@link Refusal} UNAVAILABLE.
 */
public interface MusicStore extends AutoCloseable {
    Accounts accounts();

    Library library();

    PlayLists playLists();

    /**
     * Watches for changes.
     *
     * @param ids identifiers of the library, artists, albums, genres, play lists, or accounts, which change with each
     *     of their play lists
     */
    ChangeWatch watch(Collection<String> ids);

    @Override
    void close();
}
