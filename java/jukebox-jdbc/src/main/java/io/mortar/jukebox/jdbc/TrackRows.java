package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.Named;
import io.mortar.jukebox.model.TrackView;
import java.sql.ResultSet;
import java.sql.SQLException;

/** The rows of queries that return tracks. */
final class TrackRows {
    /** What a query of tracks selects; {@code t} is the track. */
    static final String COLUMNS =
            "t.id, t.title, t.number, t.seconds, t.owner, a.id as artist_id, a.name as artist_name, b.id as album_id, "
                    + "b.title as album_title, g.id as genre_id, g.name as genre_name";

    static final String JOINS =
            " join artist a on a.id = t.artist join album b on b.id = t.album left join genre g on g.id = t.genre ";
    static final String SELECT = "select " + COLUMNS + " from track t" + JOINS;

    private TrackRows() {}

    static TrackView view(ResultSet row) throws SQLException {
        String genre = row.getString("genre_id");
        return new TrackView(
                row.getString("id"),
                row.getString("title"),
                new Named(row.getString("artist_id"), row.getString("artist_name")),
                new Named(row.getString("album_id"), row.getString("album_title")),
                genre == null ? null : new Named(genre, row.getString("genre_name")),
                row.getInt("number"),
                row.getInt("seconds"),
                row.getString("owner"));
    }
}
