package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.AlbumPage;
import io.mortar.jukebox.model.AlbumView;
import io.mortar.jukebox.model.ArtistPage;
import io.mortar.jukebox.model.ArtistView;
import io.mortar.jukebox.model.Audio;
import io.mortar.jukebox.model.GenrePage;
import io.mortar.jukebox.model.GenreView;
import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.LibraryTotals;
import io.mortar.jukebox.model.Listing;
import io.mortar.jukebox.model.Named;
import io.mortar.jukebox.model.NewTrack;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.SearchText;
import io.mortar.jukebox.model.Slice;
import io.mortar.jukebox.model.TrackTags;
import io.mortar.jukebox.model.TrackView;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;

/** The music in SQL. */
final class JdbcLibrary implements Library {
    /** What a notification calls the library. The sequence begins at 1. */
    private static final long LIBRARY = 0;

    private static final int GENRES = 500;
    private static final int ALBUMS_OF_ARTIST = 1000;
    private static final int TRACKS_OF_ALBUM = 1000;

    private static final String ARTISTS =
            "select a.id, a.name, count(*) as tracks from artist a join track t on t.artist = a.id ";
    private static final String ALBUMS =
            "select b.id, b.title, b.year, a.id as artist_id, a.name as artist_name, count(*) as tracks "
                    + "from album b join artist a on a.id = b.artist join track t on t.album = b.id ";
    private static final String GENRE_COUNTS =
            "select g.id, g.name, count(*) as tracks from genre g join track t on t.genre = g.id ";

    private final Database database;

    JdbcLibrary(Database database) {
        this.database = database;
    }

    @Override
    public LibraryTotals totals() {
        return database.transact(connection -> Sql.first(
                connection,
                row -> new LibraryTotals(Long.toString(LIBRARY), row.getLong("tracks"), row.getLong("seconds")),
                "select count(*) as tracks, coalesce(sum(seconds), 0) as seconds from track"));
    }

    // ------------------------------------------------------------------------------------------- changes

    @Override
    public boolean contains(String sha256) {
        return database.transact(connection -> contains(connection, sha256));
    }

    private static boolean contains(Connection connection, String sha256) throws SQLException {
        return Sql.first(connection, row -> true, "select 1 from track where sha256 = ?", sha256) != null;
    }

    @Override
    public TrackView add(String account, NewTrack file) throws IOException {
        return database.transactIo(connection -> {
            if (contains(connection, file.sha256())) {
                throw new Refusal(Refusal.Reason.EXISTS, "the library has this file already");
            }
            TrackTags tags = file.tags();
            String artistKey = SearchText.key(tags.artist());
            long artist = findOrAdd(connection, "artist", "key, name", artistKey, tags.artist());
            String albumKey = SearchText.key(tags.album()) + '\t' + artistKey;
            long album = findOrAdd(connection, "album", "key, title, artist", albumKey, tags.album(), artist);
            Sql.update(connection, "update album set year = ? where id = ? and year = 0", tags.year(), album);
            Long genre = tags.genre().isEmpty()
                    ? null
                    : findOrAdd(connection, "genre", "key, name", SearchText.key(tags.genre()), tags.genre());
            long audio;
            try (InputStream bytes = Files.newInputStream(file.file())) {
                audio = LargeObjects.create(connection, bytes);
            }
            long id = Sql.first(
                    connection,
                    row -> row.getLong("id"),
                    "insert into track (title, artist, album, genre, disc, number, seconds, media_type, size, sha256, audio, owner, title_key,"
                            + " search_text) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id",
                    tags.title(),
                    artist,
                    album,
                    genre,
                    tags.disc(),
                    tags.number(),
                    tags.seconds(),
                    file.mediaType(),
                    file.size(),
                    file.sha256(),
                    audio,
                    Identifiers.parse(account, "account"),
                    SearchText.key(tags.title()),
                    SearchText.key(String.join(" ", tags.title(), tags.artist(), tags.album(), tags.genre())));
            Notifications.send(connection, LIBRARY, artist, album);
            if (genre != null) {
                Notifications.send(connection, genre);
            }
            return Sql.first(connection, TrackRows::view, TrackRows.SELECT + "where t.id = ?", id);
        });
    }

    /** @param values of the columns, first the key */
    private static long findOrAdd(Connection connection, String table, String columns, Object... values)
            throws SQLException {
        Long found = Sql.first(
                connection, row -> row.getLong("id"), "select id from " + table + " where key = ?", values[0]);
        if (found != null) {
            return found;
        }
        String parameters = String.join(", ", Collections.nCopies(values.length, "?"));
        return Sql.first(
                connection,
                row -> row.getLong("id"),
                "insert into " + table + " (" + columns + ") values (" + parameters + ") returning id",
                values);
    }

    /** What the removal of a track needs to know. */
    private record Removal(long owner, long artist, long album, Long genre, long audio) {}

    @Override
    public void remove(String account, String id) {
        database.transact(connection -> {
            long track = Identifiers.parse(id, "track");
            Removal removal = Sql.require(
                    connection,
                    "track",
                    row -> new Removal(
                            row.getLong("owner"),
                            row.getLong("artist"),
                            row.getLong("album"),
                            row.getObject("genre", Long.class),
                            row.getLong("audio")),
                    "select owner, artist, album, genre, audio from track where id = ?",
                    track);
            if (removal.owner() != Identifiers.parse(account, "account")) {
                throw new Refusal(Refusal.Reason.FORBIDDEN, "only the account that uploaded a track can remove it");
            }
            JdbcPlayLists.removeEverywhere(connection, track);
            Sql.update(connection, "delete from track where id = ?", track);
            leave(connection, "album", removal.album());
            leave(connection, "artist", removal.artist());
            if (removal.genre() != null) {
                leave(connection, "genre", removal.genre());
            }
            LargeObjects.delete(connection, removal.audio());
            Notifications.send(connection, LIBRARY);
            return null;
        });
    }

    /** Deletes what a removed track belonged to, if that was its last track. */
    private static void leave(Connection connection, String table, long id) throws SQLException {
        Sql.update(
                connection,
                "delete from " + table + " where id = ? and not exists (select 1 from track where " + table + " = ?)",
                id,
                id);
        Notifications.send(connection, id);
    }

    // ------------------------------------------------------------------------------------------- pages

    @Override
    public Audio audio(String track) {
        return database.transact(connection -> Sql.require(
                connection,
                "track",
                row -> new StoredAudio(
                        database, row.getLong("audio"), row.getString("media_type"), row.getLong("size")),
                "select audio, media_type, size from track where id = ?",
                Identifiers.parse(track, "track")));
    }

    private record StoredAudio(Database database, long id, String mediaType, long size) implements Audio {
        @Override
        public InputStream open(long from, long end) {
            return LargeObjects.open(database, id, from, end);
        }
    }

    @Override
    public Listing<ArtistView> artists(Slice slice) {
        return listing(JdbcLibrary::artist, slice, ARTISTS + "group by a.id order by a.key");
    }

    @Override
    public ArtistPage artist(String id) {
        return database.transact(connection -> {
            long key = Identifiers.parse(id, "artist");
            ArtistView artist = Sql.require(
                    connection, "artist", JdbcLibrary::artist, ARTISTS + "where a.id = ? group by a.id", key);
            return new ArtistPage(
                    artist,
                    Sql.list(
                            connection,
                            JdbcLibrary::album,
                            ALBUMS + "where b.artist = ? group by b.id, a.id order by b.year, b.key limit ?",
                            key,
                            ALBUMS_OF_ARTIST));
        });
    }

    private static ArtistView artist(ResultSet row) throws SQLException {
        return new ArtistView(row.getString("id"), row.getString("name"), row.getInt("tracks"));
    }

    @Override
    public Listing<AlbumView> albums(Slice slice) {
        return listing(JdbcLibrary::album, slice, ALBUMS + "group by b.id, a.id order by b.key");
    }

    @Override
    public AlbumPage album(String id) {
        return database.transact(connection -> {
            long key = Identifiers.parse(id, "album");
            AlbumView album = Sql.require(
                    connection, "album", JdbcLibrary::album, ALBUMS + "where b.id = ? group by b.id, a.id", key);
            return new AlbumPage(
                    album,
                    Sql.list(
                            connection,
                            TrackRows::view,
                            TrackRows.SELECT + "where t.album = ? order by t.disc, t.number, t.title_key limit ?",
                            key,
                            TRACKS_OF_ALBUM));
        });
    }

    private static AlbumView album(ResultSet row) throws SQLException {
        return new AlbumView(
                row.getString("id"),
                row.getString("title"),
                new Named(row.getString("artist_id"), row.getString("artist_name")),
                row.getInt("year"),
                row.getInt("tracks"));
    }

    @Override
    public List<GenreView> genres() {
        return database.transact(connection -> Sql.list(
                connection, JdbcLibrary::genre, GENRE_COUNTS + "group by g.id order by g.key limit ?", GENRES));
    }

    @Override
    public GenrePage genre(String id, Slice slice) {
        return database.transact(connection -> {
            long key = Identifiers.parse(id, "genre");
            GenreView genre = Sql.require(
                    connection, "genre", JdbcLibrary::genre, GENRE_COUNTS + "where g.id = ? group by g.id", key);
            return new GenrePage(
                    genre,
                    listing(
                            connection,
                            TrackRows::view,
                            slice,
                            TrackRows.SELECT + "where t.genre = ? order by t.title_key, t.id",
                            key));
        });
    }

    private static GenreView genre(ResultSet row) throws SQLException {
        return new GenreView(row.getString("id"), row.getString("name"), row.getInt("tracks"));
    }

    @Override
    public Listing<TrackView> newest(Slice slice) {
        return listing(TrackRows::view, slice, TrackRows.SELECT + "order by t.added desc, t.id desc");
    }

    @Override
    public Listing<TrackView> search(List<String> words, Slice slice) {
        String condition = String.join(
                " and ",
                words.stream().map(word -> "position(? in t.search_text) > 0").toList());
        return listing(
                TrackRows::view,
                slice,
                TrackRows.SELECT + "where " + condition + " order by t.title_key, t.id",
                words.toArray());
    }

    private <T> Listing<T> listing(Sql.Mapper<T> mapper, Slice slice, String sql, Object... parameters) {
        return database.transact(connection -> listing(connection, mapper, slice, sql, parameters));
    }

    private static <T> Listing<T> listing(
            Connection connection, Sql.Mapper<T> mapper, Slice slice, String sql, Object... parameters)
            throws SQLException {
        List<Object> all = new ArrayList<>(Arrays.asList(parameters));
        all.add(slice.offset());
        all.add(slice.limit() + 1);
        List<T> found = Sql.list(connection, mapper, sql + " offset ? limit ?", all.toArray());
        return Listing.of(found, slice, Function.identity());
    }
}
