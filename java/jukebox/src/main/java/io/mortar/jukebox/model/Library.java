package io.mortar.jukebox.model;

import java.io.IOException;
import java.util.List;

/** The music of all accounts. Identifiers that do not exist are refused as NOT_FOUND. */
public interface Library {
    LibraryTotals totals();

    /** Whether the library has a file with these bytes. */
    boolean contains(String sha256);

    /**
     * Adds a track, and its artist, album and genre if they are new.
     *
     * @throws Refusal EXISTS, if the library has a file with the same bytes
     * @throws IOException if the file cannot be read
     */
    TrackView add(String account, NewTrack track) throws IOException;

    /**
     * Removes a track from the library and from all play lists; with it its artist, album and genre, if it was their
     * last.
     *
     * @throws Refusal FORBIDDEN, if another account has uploaded it
     */
    void remove(String account, String track);

    Audio audio(String track);

    Listing<ArtistView> artists(Slice slice);

    ArtistPage artist(String id);

    Listing<AlbumView> albums(Slice slice);

    AlbumPage album(String id);

    List<GenreView> genres();

    GenrePage genre(String id, Slice slice);

    /** The tracks in the order in which they came, the newest first. */
    Listing<TrackView> newest(Slice slice);

    /** The tracks that have all words in their title, artist, album or genre. */
    Listing<TrackView> search(List<String> words, Slice slice);
}
