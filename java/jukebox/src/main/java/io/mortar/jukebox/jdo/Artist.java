package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.ArtistView;
import io.mortar.jukebox.model.Named;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** An artist with at least one track. */
@PersistenceCapable
class Artist {
    /** The name as searches see it. */
    @Unique
    private String key;

    private String name;
    private int tracks;

    Artist(String key, String name) {
        this.key = key;
        this.name = name;
    }

    String key() {
        return key;
    }

    Named named() {
        return new Named(Identifiers.of(this), name);
    }

    ArtistView view() {
        return new ArtistView(Identifiers.of(this), name, tracks);
    }

    void add() {
        tracks++;
    }

    /** Returns whether a track was the last one. */
    boolean remove() {
        return --tracks == 0;
    }
}
