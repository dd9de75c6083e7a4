package io.mortar.jukebox.model;

import java.util.List;

/**
 * The play lists, each of one account. A list of another account is refused as NOT_FOUND, like one that does not exist.
 *
 * <p>A change of the order names the track that the caller sees at a position. If another one is there by now, it is
 * refused as CHANGED.
 */
public interface PlayLists {
    /** The most play lists of an account. */
    int LISTS_LIMIT = 200;
    /** The most tracks of a play list. */
    int TRACKS_LIMIT = 1000;

    List<PlayListView> of(String account);

    PlayListPage get(String account, String list);

    PlayListView create(String account, String name);

    void rename(String account, String list, String name);

    void delete(String account, String list);

    /** Adds a track at the end. */
    void add(String account, String list, String track);

    void remove(String account, String list, int position, String track);

    /** Moves a track to another position; those between move by one. */
    void move(String account, String list, int from, int to, String track);

    /** Refuses a change of something that is not at its position any more. */
    static void requireAt(List<String> tracks, int position, String track) {
        if (position < 0 || position >= tracks.size() || !tracks.get(position).equals(track)) {
            throw new Refusal(Refusal.Reason.CHANGED, "the play list has changed; look at it again");
        }
    }
}
