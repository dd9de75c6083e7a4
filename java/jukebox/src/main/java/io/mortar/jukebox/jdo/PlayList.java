package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.PlayListView;
import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.PersistenceCapable;

/** Tracks in an order that the owner chooses. Each change is noted in the owner's account, too. */
@PersistenceCapable
class PlayList {
    private String name;
    private Account owner;
    private List<Track> tracks = new ArrayList<>();

    PlayList(String name, Account owner) {
        this.name = name;
        this.owner = owner;
    }

    PlayListView view() {
        return new PlayListView(Identifiers.of(this), name, tracks.size());
    }

    Account owner() {
        return owner;
    }

    List<Track> tracks() {
        return List.copyOf(tracks);
    }

    void rename(String newName) {
        name = newName;
        owner.playListsChanged();
    }

    void add(Track track) {
        tracks.add(track);
        owner.playListsChanged();
    }

    void remove(int position) {
        tracks.remove(position);
        owner.playListsChanged();
    }

    void move(int from, int to) {
        tracks.add(to, tracks.remove(from));
        owner.playListsChanged();
    }

    /** Removes a track that leaves the library. */
    void removeAll(Track track) {
        tracks.removeAll(List.of(track));
        owner.playListsChanged();
    }
}
