package io.mortar.bench.side;

import jakarta.persistence.EntityManagerFactory;

/**
 * A factory with what it uses.
 *
 * @param factory the factory; its caches were empty when it was opened
 * @param resources what is closed after it: a pool of connections, a cache
 */
public record OpenStore(EntityManagerFactory factory, AutoCloseable... resources) implements AutoCloseable {
    @Override
    public void close() {
        factory.close();
        for (AutoCloseable each : resources) {
            try {
                each.close();
            } catch (Exception error) {
                throw new IllegalStateException("a resource of the store cannot be closed", error);
            }
        }
    }
}
