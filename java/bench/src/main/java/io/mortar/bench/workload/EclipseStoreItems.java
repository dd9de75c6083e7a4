package io.mortar.bench.workload;

import io.mortar.bench.Results;
import io.mortar.bench.model.Item;
import io.mortar.bench.side.Versions;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.eclipse.serializer.concurrency.LockedExecutor;
import org.eclipse.serializer.persistence.types.Storer;
import org.eclipse.store.storage.embedded.types.EmbeddedStorage;
import org.eclipse.store.storage.embedded.types.EmbeddedStorageManager;

/**
 * Items in EclipseStore, by its own interface: a graph of objects in memory, of which a transaction stores what it has
 * changed. One lock keeps readers and writers apart, as its documentation shows.
 */
public final class EclipseStoreItems implements ItemStore {
    /** A map is stored as a whole when it changes, so the items are in many small ones. */
    private static final int MAPS = 16_384;

    private static final int IDS_IN_A_ROW = 64;

    private final Path directory;
    private final LockedExecutor lock = LockedExecutor.New();
    private final AtomicLong lastId = new AtomicLong();
    private Root root = new Root();
    private EmbeddedStorageManager storage;

    /** The root of the graph. */
    static final class Root {
        private final List<Map<Long, Item>> maps = new ArrayList<>();

        Map<Long, Item> mapOf(long id) {
            return maps.get((int) (id / IDS_IN_A_ROW % MAPS));
        }
    }

    public EclipseStoreItems(Path directory, Results results) {
        this.directory = directory;
        for (int i = 0; i < MAPS; i++) {
            root.maps.add(new HashMap<>());
        }
        storage = EmbeddedStorage.start(root, directory);
        results.note(Versions.of("eclipsestore") + "; defaults; " + MAPS + " maps below the root, one lock");
    }

    @Override
    public long[] load(List<Item> items) {
        lock.write(() -> {
            storage.storeAll(putAll(items));
        });
        return items.stream().mapToLong(Item::getId).toArray();
    }

    /** Adds items, and returns the maps that this has changed. */
    private Set<Object> putAll(List<Item> items) {
        Set<Object> changed = Collections.newSetFromMap(new IdentityHashMap<>());
        for (Item item : items) {
            item.setId(lastId.incrementAndGet());
            Map<Long, Item> map = root.mapOf(item.getId());
            map.put(item.getId(), item);
            changed.add(map);
        }
        return changed;
    }

    @Override
    public boolean transact(long[] read, List<Item> created) {
        lock.write(() -> {
            Storer storer = storage.createStorer();
            for (long id : read) {
                find(id).check();
            }
            Item first = find(read[0]);
            first.setCounter(first.getCounter() + 1);
            storer.store(first);
            storer.storeAll(putAll(created));
            storer.commit();
        });
        return true;
    }

    private Item find(long id) {
        Item item = root.mapOf(id).get(id);
        if (item == null) {
            throw new IllegalStateException("the item " + id + " is lost");
        }
        return item;
    }

    @Override
    public void reopen() {
        storage.shutdown();
        storage = EmbeddedStorage.start(directory);
        root = (Root) storage.root();
    }

    @Override
    public long count() {
        return lock.read(() -> root.maps.stream().mapToLong(Map::size).sum());
    }

    @Override
    public void read(long[] ids, LongConsumer counter) {
        lock.read(() -> {
            for (long id : ids) {
                Item item = find(id);
                item.check();
                counter.accept(item.getCounter());
            }
        });
    }

    @Override
    public void close() {
        storage.shutdown();
    }
}
