package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.Audio;
import io.mortar.jukebox.model.NewTrack;
import io.mortar.jukebox.model.SearchText;
import io.mortar.jukebox.model.TrackTags;
import io.mortar.jukebox.model.TrackView;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import javax.jdo.PersistenceManager;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** A piece of music. */
@PersistenceCapable
class Track {
    private String title;
    private Artist artist;

    @Index
    private Album album;

    @Index
    private Genre genre;

    private int disc;
    private int number;
    private int seconds;
    private String mediaType;
    private long size;
    /** The hash of the audio: the library has no file twice. */
    @Unique
    private String sha256;
    /** Identifies the bytes in {@link AudioContents}. */
    private String audio;

    private Account owner;

    @Index
    private Instant added;

    private String titleKey;
    private String searchText;

    Track(NewTrack file, String audio, Artist artist, Album album, Genre genre, Account owner, Instant added) {
        TrackTags tags = file.tags();
        title = tags.title();
        disc = tags.disc();
        number = tags.number();
        seconds = tags.seconds();
        titleKey = SearchText.key(title);
        searchText = SearchText.key(String.join(" ", title, tags.artist(), tags.album(), tags.genre()));
        mediaType = file.mediaType();
        size = file.size();
        sha256 = file.sha256();
        this.audio = audio;
        this.artist = artist;
        this.album = album;
        this.genre = genre;
        this.owner = owner;
        this.added = added;
    }

    TrackView view() {
        return new TrackView(
                Identifiers.of(this),
                title,
                artist.named(),
                album.named(),
                genre == null ? null : genre.named(),
                number,
                seconds,
                Identifiers.of(owner));
    }

    Audio audio(AudioContents contents) {
        return contents.audio(audio, mediaType, size);
    }

    String audio() {
        return audio;
    }

    int seconds() {
        return seconds;
    }

    boolean isOf(String account) {
        return Identifiers.of(owner).equals(account);
    }

    /** Counts the track in the totals and in its artist, album and genre. */
    void enter(Totals totals, int year) {
        totals.add(this);
        artist.add();
        album.add(year);
        if (genre != null) {
            genre.add();
        }
    }

    /** Deletes the track, and its artist, album and genre if they have no other track. */
    void leave(PersistenceManager manager, Totals totals) {
        totals.remove(this);
        List<Object> empty = new ArrayList<>(List.of(this));
        if (album.remove()) {
            empty.add(album);
        }
        if (artist.remove()) {
            empty.add(artist);
        }
        if (genre != null && genre.remove()) {
            empty.add(genre);
        }
        manager.deletePersistentAll(empty);
    }
}
