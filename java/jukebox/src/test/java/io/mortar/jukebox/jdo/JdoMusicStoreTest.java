package io.mortar.jukebox.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.Client;
import io.mortar.ObjectKind;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.NewTrack;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.TrackTags;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import javax.jdo.Constants;
import javax.jdo.JDOException;
import javax.jdo.JDOHelper;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;
import javax.jdo.datastore.JDOConnection;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JdoMusicStoreTest {
    @ParameterizedTest
    @ValueSource(strings = {"", "x", "1.2", "7fff.1.1.1.1", "1.ffffffff.1.1.1"})
    void malformed_and_foreign_identifiers_cannot_be_watched(String id) {
        try (MusicStore store = JdoMusicStore.open("mortar:memory:" + UUID.randomUUID(), Map.of())) {
            Refusal refusal = assertThrows(Refusal.class, () -> store.watch(List.of(id)));
            assertEquals(Refusal.Reason.NOT_FOUND, refusal.reason());
        }
    }

    @Test
    void audio_of_a_track_that_cannot_be_stored_is_deleted(@TempDir Path directory) throws IOException {
        String url = "mortar:memory:" + UUID.randomUUID();
        Path file = Files.write(directory.resolve("music"), new byte[100]);
        try (MusicStore store = JdoMusicStore.open(url, Map.of())) {
            String account = store.accounts().register("ann", "hash").id();
            TrackTags tags = new TrackTags("t".repeat(5 << 20), "artist", "album", "genre", 1999, 1, 1, 10);
            NewTrack track = new NewTrack(tags, "audio/wav", "0".repeat(64), file, 100);
            assertThrows(JDOException.class, () -> store.library().add(account, track));
            assertEquals(0, blobs(url));
            TrackTags shorter = new TrackTags("title", "artist", "album", "genre", 1999, 1, 1, 10);
            store.library().add(account, new NewTrack(shorter, "audio/wav", "0".repeat(64), file, 100));
            assertEquals(1, blobs(url));
        }
    }

    /** The number of blobs in a store that is open. */
    private static long blobs(String url) {
        PersistenceManagerFactory factory = JDOHelper.getPersistenceManagerFactory(Map.of(
                Constants.PROPERTY_PERSISTENCE_MANAGER_FACTORY_CLASS,
                "org.datanucleus.api.jdo.JDOPersistenceManagerFactory",
                Constants.PROPERTY_CONNECTION_URL,
                url));
        try (PersistenceManager manager = factory.getPersistenceManager()) {
            JDOConnection connection = manager.getDataStoreConnection();
            try (var objects = ((Client) connection.getNativeConnection()).objects()) {
                return objects.stream()
                        .filter(object -> object.kind() == ObjectKind.BLOB)
                        .count();
            } finally {
                connection.close();
            }
        } finally {
            factory.close();
        }
    }
}
