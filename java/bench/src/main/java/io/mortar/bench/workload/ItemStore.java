package io.mortar.bench.workload;

import io.mortar.bench.model.Item;
import java.util.List;
import java.util.function.LongConsumer;

/** A store of items, for small transactions of several threads. */
public interface ItemStore extends AutoCloseable {
    /** Stores new items in transactions of their own, and returns their identities in this order. */
    long[] load(List<Item> items);

    /**
     * Runs one durable transaction: reads items, and checks them; adds 1 to the counter of the first of them; stores
     * new items.
     *
     * @param created the new items, which have their identities afterwards
     * @return false if the transaction conflicted with another one and has changed nothing
     */
    boolean transact(long[] read, List<Item> created);

    /** Opens the store again, with empty caches. */
    void reopen();

    /** The number of items. */
    long count();

    /** Reads items and checks them, and passes on their counters. */
    void read(long[] ids, LongConsumer counter);

    @Override
    void close();
}
