package io.mortar.jukebox.jdo;

import io.mortar.MortarException;
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
import io.mortar.jukebox.model.NewTrack;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.SearchText;
import io.mortar.jukebox.model.Slice;
import io.mortar.jukebox.model.TrackTags;
import io.mortar.jukebox.model.TrackView;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;

/** The music by JDO. */
final class JdoLibrary implements Library {
    private static final Logger LOG = Logger.getLogger(JdoLibrary.class.getName());
    private static final int GENRES = 500;
    private static final int ALBUMS_OF_ARTIST = 1000;
    private static final int TRACKS_OF_ALBUM = 1000;

    private final Transactions transactions;
    private final AudioContents contents;

    JdoLibrary(Transactions transactions, AudioContents contents) {
        this.transactions = transactions;
        this.contents = contents;
        transactions.execute(manager -> {
            if (totals(manager) == null) {
                manager.makePersistent(new Totals());
            }
        });
    }

    @Override
    public LibraryTotals totals() {
        return transactions.run(manager -> totals(manager).view());
    }

    private static Totals totals(PersistenceManager manager) {
        return byKey(manager, Totals.class, "name", Totals.NAME);
    }

    // ------------------------------------------------------------------------------------------- changes

    @Override
    public boolean contains(String sha256) {
        return transactions.run(manager -> byKey(manager, Track.class, "sha256", sha256) != null);
    }

    @Override
    public TrackView add(String account, NewTrack file) throws IOException {
        String audio;
        try (InputStream bytes = Files.newInputStream(file.file())) {
            audio = contents.store(bytes);
        }
        try {
            return transactions.run(
                    manager -> add(manager, account, file, audio).view());
        } catch (RuntimeException error) {
            // The track may have been added all the same, and needs its audio then.
            if (!Transactions.mayHaveCommitted(error)) {
                delete(audio);
            }
            throw error;
        }
    }

    private static Track add(PersistenceManager manager, String account, NewTrack file, String audio) {
        if (byKey(manager, Track.class, "sha256", file.sha256()) != null) {
            throw new Refusal(Refusal.Reason.EXISTS, "the library has this file already");
        }
        TrackTags tags = file.tags();
        Artist artist =
                findOrAdd(manager, Artist.class, SearchText.key(tags.artist()), key -> new Artist(key, tags.artist()));
        Album album = findOrAdd(
                manager,
                Album.class,
                SearchText.key(tags.album()) + '\t' + artist.key(),
                key -> new Album(key, tags.album(), artist));
        Genre genre = tags.genre().isEmpty()
                ? null
                : findOrAdd(manager, Genre.class, SearchText.key(tags.genre()), key -> new Genre(key, tags.genre()));
        Account owner = Identifiers.load(manager, Account.class, account, "account");
        Track track = manager.makePersistent(new Track(file, audio, artist, album, genre, owner, Instant.now()));
        track.enter(totals(manager), tags.year());
        return track;
    }

    private static <T> T findOrAdd(
            PersistenceManager manager, Class<T> type, String key, Function<String, T> constructor) {
        T found = byKey(manager, type, "key", key);
        return found != null ? found : manager.makePersistent(constructor.apply(key));
    }

    @Override
    public void remove(String account, String id) {
        delete(transactions.run(manager -> {
            Track track = Identifiers.load(manager, Track.class, id, "track");
            if (!track.isOf(account)) {
                throw new Refusal(Refusal.Reason.FORBIDDEN, "only the account that uploaded a track can remove it");
            }
            String audio = track.audio();
            manager.newQuery(PlayList.class, "tracks.contains(:track)")
                    .setParameters(track)
                    .executeList()
                    .forEach(list -> list.removeAll(track));
            track.leave(manager, totals(manager));
            return audio;
        }));
    }

    /** Deletes audio without a track. If that fails, it stays, unused. */
    private void delete(String audio) {
        try {
            contents.delete(audio);
        } catch (MortarException error) {
            LOG.log(Level.WARNING, "the unused audio " + audio + " cannot be deleted", error);
        }
    }

    // ------------------------------------------------------------------------------------------- pages

    @Override
    public Audio audio(String track) {
        return transactions.run(manager ->
                Identifiers.load(manager, Track.class, track, "track").audio(contents));
    }

    @Override
    public Listing<ArtistView> artists(Slice slice) {
        return transactions.run(
                manager -> listing(manager.newQuery(Artist.class), "key ascending", slice, Artist::view));
    }

    @Override
    public ArtistPage artist(String id) {
        return transactions.run(manager -> {
            Artist artist = Identifiers.load(manager, Artist.class, id, "artist");
            Query<Album> albums =
                    manager.newQuery(Album.class, "artist == :artist").setParameters(artist);
            return new ArtistPage(
                    artist.view(), list(albums, "year ascending, key ascending", ALBUMS_OF_ARTIST, Album::view));
        });
    }

    @Override
    public Listing<AlbumView> albums(Slice slice) {
        return transactions.run(manager -> listing(manager.newQuery(Album.class), "key ascending", slice, Album::view));
    }

    @Override
    public AlbumPage album(String id) {
        return transactions.run(manager -> {
            Album album = Identifiers.load(manager, Album.class, id, "album");
            Query<Track> tracks =
                    manager.newQuery(Track.class, "album == :album").setParameters(album);
            return new AlbumPage(
                    album.view(),
                    list(tracks, "disc ascending, number ascending, titleKey ascending", TRACKS_OF_ALBUM, Track::view));
        });
    }

    @Override
    public List<GenreView> genres() {
        return transactions.run(manager -> list(manager.newQuery(Genre.class), "key ascending", GENRES, Genre::view));
    }

    @Override
    public GenrePage genre(String id, Slice slice) {
        return transactions.run(manager -> {
            Genre genre = Identifiers.load(manager, Genre.class, id, "genre");
            Query<Track> tracks =
                    manager.newQuery(Track.class, "genre == :genre").setParameters(genre);
            return new GenrePage(genre.view(), listing(tracks, "titleKey ascending", slice, Track::view));
        });
    }

    @Override
    public Listing<TrackView> newest(Slice slice) {
        return transactions.run(
                manager -> listing(manager.newQuery(Track.class), "added descending", slice, Track::view));
    }

    @Override
    public Listing<TrackView> search(List<String> words, Slice slice) {
        String filter = IntStream.range(0, words.size())
                .mapToObj(i -> "searchText.indexOf(:word" + i + ") >= 0")
                .collect(Collectors.joining(" && "));
        Map<String, Object> parameters = new HashMap<>();
        words.forEach(word -> parameters.put("word" + parameters.size(), word));
        return transactions.run(manager -> listing(
                manager.newQuery(Track.class, filter).setNamedParameters(parameters),
                "titleKey ascending",
                slice,
                Track::view));
    }

    private static <T> T byKey(PersistenceManager manager, Class<T> type, String field, String value) {
        return manager.newQuery(type, field + " == :value").setParameters(value).executeUnique();
    }

    private static <T, V> List<V> list(Query<T> query, String order, int limit, Function<T, V> view) {
        return query.orderBy(order).range(0, limit).executeList().stream()
                .map(view)
                .toList();
    }

    private static <T, V> Listing<V> listing(Query<T> query, String order, Slice slice, Function<T, V> view) {
        List<T> found = query.orderBy(order)
                .range(slice.offset(), slice.offset() + slice.limit() + 1L)
                .executeList();
        return Listing.of(found, slice, view);
    }
}
