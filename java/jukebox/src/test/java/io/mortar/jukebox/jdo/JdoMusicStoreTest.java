package io.mortar.jukebox.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import java.util.List;
import java.util.Map;
import java.util.UUID;
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
}
