package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.AlbumView;
import io.mortar.jukebox.model.Named;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** An album of an artist with at least one track. */
@PersistenceCapable
class Album {
    /** The title and the artist as searches see them: albums of two artists can have one title. */
    @Unique
    private String key;

    private String title;

    @Index
    private Artist artist;

    private int year;
    private int tracks;

    Album(String key, String title, Artist artist) {
        this.key = key;
        this.title = title;
        this.artist = artist;
    }

    Named named() {
        return new Named(Identifiers.of(this), title);
    }

    AlbumView view() {
        return new AlbumView(Identifiers.of(this), title, artist.named(), year, tracks);
    }

    /** Counts a track, and takes its year unless another track said one. */
    void add(int yearOfTrack) {
        tracks++;
        year = year == 0 ? yearOfTrack : year;
    }

    /** Returns whether a track was the last one. */
    boolean remove() {
        return --tracks == 0;
    }
}
