package io.mortar.bench.workload;

import io.mortar.bench.model.Item;
import io.mortar.bench.side.OpenStore;
import io.mortar.bench.side.PersistenceSide;
import io.mortar.bench.side.UnitOfWork;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.PersistenceException;
import java.util.List;
import java.util.function.LongConsumer;

/** Items behind Jakarta Persistence, with an entity manager for each transaction. */
public final class PersistenceItems implements ItemStore {
    private static final int PORTION = 100;

    private final PersistenceSide side;
    private OpenStore store;

    public PersistenceItems(PersistenceSide side) {
        this.side = side;
        store = side.open();
    }

    @Override
    public long[] load(List<Item> items) {
        for (int from = 0; from < items.size(); from += PORTION) {
            List<Item> portion = items.subList(from, Math.min(items.size(), from + PORTION));
            UnitOfWork.run(store.factory(), manager -> portion.forEach(manager::persist));
        }
        side.afterLoad();
        return items.stream().mapToLong(Item::getId).toArray();
    }

    @Override
    public boolean transact(long[] read, List<Item> created) {
        try {
            UnitOfWork.run(store.factory(), manager -> {
                Item first = null;
                for (long id : read) {
                    Item item = find(manager, id);
                    item.check();
                    first = first == null ? item : first;
                }
                first.setCounter(first.getCounter() + 1);
                created.forEach(manager::persist);
            });
            return true;
        } catch (PersistenceException failure) {
            if (isConflict(failure)) {
                return false;
            }
            throw failure;
        }
    }

    private static boolean isConflict(Throwable failure) {
        return failure instanceof OptimisticLockException
                || failure.getCause() != null && failure.getCause() != failure && isConflict(failure.getCause());
    }

    static Item find(EntityManager manager, long id) {
        Item item = manager.find(Item.class, id);
        if (item == null) {
            throw new IllegalStateException("the item " + id + " is lost");
        }
        return item;
    }

    EntityManagerFactory factory() {
        return store.factory();
    }

    @Override
    public void reopen() {
        store.close();
        store = side.open();
    }

    @Override
    public long count() {
        return UnitOfWork.call(
                store.factory(),
                manager -> manager.createQuery("SELECT COUNT(i) FROM Item i", Long.class)
                        .getSingleResult());
    }

    @Override
    public void read(long[] ids, LongConsumer counter) {
        for (int from = 0; from < ids.length; from += PORTION) {
            int first = from;
            UnitOfWork.run(store.factory(), manager -> {
                for (int i = first; i < Math.min(ids.length, first + PORTION); i++) {
                    Item item = find(manager, ids[i]);
                    item.check();
                    counter.accept(item.getCounter());
                }
            });
        }
    }

    @Override
    public void close() {
        store.close();
    }
}
