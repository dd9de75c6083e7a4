package io.mortar.jukebox.model;

import java.util.Collection;

/**
 * The accounts, the music and the play lists of a jukebox. Threads can share a store, and instances of the service its
 * data.
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
