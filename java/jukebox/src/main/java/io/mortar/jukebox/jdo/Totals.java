package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.LibraryTotals;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** How much music there is. The one object of this class changes whenever a track comes or goes, so pages watch it. */
@PersistenceCapable
class Totals {
    static final String NAME = "library";

    @Unique
    private String name = NAME;

    private long tracks;
    private long seconds;

    LibraryTotals view() {
        return new LibraryTotals(Identifiers.of(this), tracks, seconds);
    }

    void add(Track track) {
        tracks++;
        seconds += track.seconds();
    }

    void remove(Track track) {
        tracks--;
        seconds -= track.seconds();
    }
}
