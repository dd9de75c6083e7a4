package io.mortar.jukebox;

import io.mortar.jukebox.model.MusicStore;

/**
 * Makes the stores that the tests run on. The system property {@code jukebox.fixture} names the class, so that the same
 * tests run on every kind of store.
 */
public interface StoreFixture {
    /** Opens a store, which is empty at first. Stores with the same name share their data. */
    MusicStore open(String name);

    static StoreFixture load() {
        String type = System.getProperty("jukebox.fixture", MortarFixture.class.getName());
        try {
            return (StoreFixture) Class.forName(type).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("jukebox.fixture: " + type, error);
        }
    }
}
