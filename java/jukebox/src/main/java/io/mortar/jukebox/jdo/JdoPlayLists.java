package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.PlayListPage;
import io.mortar.jukebox.model.PlayListView;
import io.mortar.jukebox.model.PlayLists;
import io.mortar.jukebox.model.Refusal;
import java.util.List;
import java.util.function.Consumer;
import javax.jdo.PersistenceManager;

/** The play lists by JDO. */
final class JdoPlayLists implements PlayLists {
    private final Transactions transactions;

    JdoPlayLists(Transactions transactions) {
        this.transactions = transactions;
    }

    @Override
    public List<PlayListView> of(String account) {
        return transactions.run(
                manager -> Identifiers.load(manager, Account.class, account, "account").playLists().stream()
                        .map(PlayList::view)
                        .toList());
    }

    @Override
    public PlayListPage get(String account, String list) {
        return transactions.run(manager -> {
            PlayList found = load(manager, account, list);
            return new PlayListPage(
                    found.view(), found.tracks().stream().map(Track::view).toList());
        });
    }

    @Override
    public PlayListView create(String account, String name) {
        return transactions.run(manager -> {
            Account owner = Identifiers.load(manager, Account.class, account, "account");
            if (owner.playLists().size() >= LISTS_LIMIT) {
                throw new Refusal(Refusal.Reason.TOO_MANY, "an account has at most " + LISTS_LIMIT + " play lists");
            }
            PlayList list = manager.makePersistent(new PlayList(name, owner));
            owner.playLists().add(list);
            return list.view();
        });
    }

    @Override
    public void rename(String account, String list, String name) {
        change(account, list, found -> found.rename(name));
    }

    @Override
    public void delete(String account, String list) {
        transactions.execute(manager -> {
            PlayList found = load(manager, account, list);
            found.owner().playLists().remove(found);
            manager.deletePersistent(found);
        });
    }

    @Override
    public void add(String account, String list, String track) {
        transactions.execute(manager -> {
            PlayList found = load(manager, account, list);
            if (found.tracks().size() >= TRACKS_LIMIT) {
                throw new Refusal(Refusal.Reason.TOO_MANY, "a play list has at most " + TRACKS_LIMIT + " tracks");
            }
            found.add(Identifiers.load(manager, Track.class, track, "track"));
        });
    }

    @Override
    public void remove(String account, String list, int position, String track) {
        change(account, list, found -> {
            requireAt(found, position, track);
            found.remove(position);
        });
    }

    @Override
    public void move(String account, String list, int from, int to, String track) {
        change(account, list, found -> {
            requireAt(found, from, track);
            if (to < 0 || to >= found.tracks().size()) {
                throw new Refusal(Refusal.Reason.INVALID, "the play list has no position " + to);
            }
            found.move(from, to);
        });
    }

    private static void requireAt(PlayList list, int position, String track) {
        PlayLists.requireAt(list.tracks().stream().map(Identifiers::of).toList(), position, track);
    }

    private void change(String account, String list, Consumer<PlayList> change) {
        transactions.execute(manager -> change.accept(load(manager, account, list)));
    }

    private static PlayList load(PersistenceManager manager, String account, String list) {
        PlayList found = Identifiers.load(manager, PlayList.class, list, "play list");
        if (!Identifiers.of(found.owner()).equals(account)) {
            throw Refusal.notFound("play list");
        }
        return found;
    }
}
