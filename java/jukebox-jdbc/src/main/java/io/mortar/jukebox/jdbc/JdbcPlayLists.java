package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.PlayListPage;
import io.mortar.jukebox.model.PlayListView;
import io.mortar.jukebox.model.PlayLists;
import io.mortar.jukebox.model.Refusal;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.List;

/** The play lists in SQL. The positions of a list are 0, 1, 2 and so on, without gaps. */
final class JdbcPlayLists implements PlayLists {
    private static final String LISTS = "select p.id, p.name, count(t.track) as tracks from play_list p "
            + "left join play_list_track t on t.play_list = p.id ";

    private final Database database;

    JdbcPlayLists(Database database) {
        this.database = database;
    }

    /** Changes a list. */
    @FunctionalInterface
    private interface Change {
        void apply(Connection connection, long list) throws SQLException;
    }

    @Override
    public List<PlayListView> of(String account) {
        return database.transact(connection -> Sql.list(
                connection,
                JdbcPlayLists::view,
                LISTS + "where p.owner = ? group by p.id order by p.id",
                Identifiers.parse(account, "account")));
    }

    @Override
    public PlayListPage get(String account, String list) {
        return database.transact(connection -> {
            long id = Identifiers.parse(list, "play list");
            PlayListView view = Sql.require(
                    connection,
                    "play list",
                    JdbcPlayLists::view,
                    LISTS + "where p.id = ? and p.owner = ? group by p.id",
                    id,
                    Identifiers.parse(account, "account"));
            return new PlayListPage(
                    view,
                    Sql.list(
                            connection,
                            TrackRows::view,
                            "select " + TrackRows.COLUMNS
                                    + " from play_list_track e join track t on t.id = e.track " + TrackRows.JOINS
                                    + "where e.play_list = ? order by e.position",
                            id));
        });
    }

    private static PlayListView view(ResultSet row) throws SQLException {
        return new PlayListView(row.getString("id"), row.getString("name"), row.getInt("tracks"));
    }

    @Override
    public PlayListView create(String account, String name) {
        return database.transact(connection -> {
            long owner = Identifiers.parse(account, "account");
            int lists = Sql.first(
                    connection, row -> row.getInt(1), "select count(*) from play_list where owner = ?", owner);
            if (lists >= LISTS_LIMIT) {
                throw new Refusal(Refusal.Reason.TOO_MANY, "an account has at most " + LISTS_LIMIT + " play lists");
            }
            Notifications.send(connection, owner);
            return Sql.first(
                    connection,
                    row -> new PlayListView(row.getString("id"), name, 0),
                    "insert into play_list (name, owner) values (?, ?) returning id",
                    name,
                    owner);
        });
    }

    @Override
    public void rename(String account, String list, String name) {
        change(
                account,
                list,
                (connection, id) -> Sql.update(connection, "update play_list set name = ? where id = ?", name, id));
    }

    @Override
    public void delete(String account, String list) {
        change(account, list, (connection, id) -> Sql.update(connection, "delete from play_list where id = ?", id));
    }

    @Override
    public void add(String account, String list, String track) {
        change(account, list, (connection, id) -> {
            int tracks = Sql.first(
                    connection, row -> row.getInt(1), "select count(*) from play_list_track where play_list = ?", id);
            if (tracks >= TRACKS_LIMIT) {
                throw new Refusal(Refusal.Reason.TOO_MANY, "a play list has at most " + TRACKS_LIMIT + " tracks");
            }
            long added = Sql.require(
                    connection,
                    "track",
                    row -> row.getLong("id"),
                    "select id from track where id = ?",
                    Identifiers.parse(track, "track"));
            Sql.update(
                    connection,
                    "insert into play_list_track (play_list, position, track) values (?, ?, ?)",
                    id,
                    tracks,
                    added);
        });
    }

    @Override
    public void remove(String account, String list, int position, String track) {
        change(account, list, (connection, id) -> {
            PlayLists.requireAt(tracks(connection, id), position, track);
            Sql.update(connection, "delete from play_list_track where play_list = ? and position = ?", id, position);
            Sql.update(
                    connection,
                    "update play_list_track set position = position - 1 where play_list = ? and position > ?",
                    id,
                    position);
        });
    }

    @Override
    public void move(String account, String list, int from, int to, String track) {
        change(account, list, (connection, id) -> {
            List<String> tracks = tracks(connection, id);
            PlayLists.requireAt(tracks, from, track);
            if (to < 0 || to >= tracks.size()) {
                throw new Refusal(Refusal.Reason.INVALID, "the play list has no position " + to);
            }
            int step = from < to ? -1 : 1;
            Sql.update(
                    connection,
                    "update play_list_track set position = case when position = ? then ? else position + ? end "
                            + "where play_list = ? and position between ? and ?",
                    from,
                    to,
                    step,
                    id,
                    Math.min(from, to),
                    Math.max(from, to));
        });
    }

    /** Removes a track that leaves the library from all lists, and closes the gaps. */
    static void removeEverywhere(Connection connection, long track) throws SQLException {
        List<Long> lists = Sql.list(
                connection,
                row -> row.getLong(1),
                "select distinct play_list from play_list_track where track = ?",
                track);
        Sql.update(connection, "delete from play_list_track where track = ?", track);
        for (long list : lists) {
            Sql.update(
                    connection,
                    "update play_list_track e set position = r.rank from (select position, row_number() over "
                            + "(order by position) - 1 as rank from play_list_track where play_list = ?) r "
                            + "where e.play_list = ? and e.position = r.position",
                    list,
                    list);
            long owner = Sql.first(connection, row -> row.getLong(1), "select owner from play_list where id = ?", list);
            Notifications.send(connection, list, owner);
        }
    }

    private void change(String account, String list, Change change) {
        database.transact(connection -> {
            long id = Identifiers.parse(list, "play list");
            long owner = Identifiers.parse(account, "account");
            Sql.require(
                    connection,
                    "play list",
                    row -> true,
                    "select 1 from play_list where id = ? and owner = ?",
                    id,
                    owner);
            change.apply(connection, id);
            Notifications.send(connection, id, owner);
            return null;
        });
    }

    private static List<String> tracks(Connection connection, long list) throws SQLException {
        return Sql.list(
                connection,
                row -> row.getString("track"),
                "select track from play_list_track where play_list = ? order by position",
                list);
    }
}
