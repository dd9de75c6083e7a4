package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.AccountView;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** A person who can log in, with the play lists in the order in which they were created. */
@PersistenceCapable
class Account {
    /** The name in lower case. */
    @Unique
    private String key;

    private String name;
    private String passwordHash;
    private Instant created;
    private List<PlayList> playLists = new ArrayList<>();
    private long playListChanges;

    Account(String key, String name, String passwordHash, Instant created) {
        this.key = key;
        this.name = name;
        this.passwordHash = passwordHash;
        this.created = created;
    }

    AccountView view() {
        return new AccountView(Identifiers.of(this), name);
    }

    String passwordHash() {
        return passwordHash;
    }

    List<PlayList> playLists() {
        return playLists;
    }

    /** Notes that a play list has changed, for the pages that watch the account. */
    void playListsChanged() {
        playListChanges++;
    }
}
