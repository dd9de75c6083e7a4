package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.GenreView;
import io.mortar.jukebox.model.Named;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** A genre with at least one track. */
@PersistenceCapable
class Genre {
    /** The name as searches see it. */
    @Unique
    private String key;

    private String name;
    private int tracks;

    Genre(String key, String name) {
        this.key = key;
        this.name = name;
    }

    Named named() {
        return new Named(Identifiers.of(this), name);
    }

    GenreView view() {
        return new GenreView(Identifiers.of(this), name, tracks);
    }

    void add() {
        tracks++;
    }

    /** Returns whether a track was the last one. */
    boolean remove() {
        return --tracks == 0;
    }
}
