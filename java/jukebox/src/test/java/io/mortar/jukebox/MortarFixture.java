package io.mortar.jukebox;

import io.mortar.jukebox.jdo.JdoMusicStore;
import io.mortar.jukebox.model.MusicStore;
import java.util.Map;

/** Stores of Mortar in memory. */
public final class MortarFixture implements StoreFixture {
    @Override
    public MusicStore open(String name) {
        return JdoMusicStore.open("mortar:memory:" + name, Map.of());
    }
}
