package io.mortar.bench.workload;

import io.mortar.bench.Options;
import io.mortar.bench.Results;
import io.mortar.bench.oo7.Loader;
import io.mortar.bench.oo7.Queries;
import io.mortar.bench.oo7.Traversals;
import io.mortar.bench.side.OpenStore;
import io.mortar.bench.side.PersistenceSide;
import io.mortar.bench.side.UnitOfWork;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import java.time.Duration;

/**
 * The traversals and queries of OO7 on its small database.
 *
 * <p>A cold traversal has a new factory, so the caches of the process are empty. A hot one has a new entity manager and
 * warm caches. The last kind repeats the traversal with one entity manager, whose objects are loaded.
 */
public final class Navigation {
    private final Options options;
    private final PersistenceSide side;
    private final Results results;
    private final ServerProcess server;

    public Navigation(Options options, PersistenceSide side, Results results) {
        this.options = options;
        this.side = side;
        this.results = results;
        server = new ServerProcess(options.serverProcess());
    }

    public void run() {
        try (OpenStore store = side.open()) {
            results.add("load_s", Timing.nanos(() -> Loader.load(store.factory())) / 1e9);
        }
        side.afterLoad();
        for (Traversals traversal : Traversals.values()) {
            measureCold(traversal);
        }
        try (OpenStore store = side.open()) {
            for (Traversals traversal : Traversals.values()) {
                measureHot(store.factory(), traversal);
            }
            for (Queries query : Queries.values()) {
                measureQuery(store.factory(), query);
            }
        }
    }

    private void measureCold(Traversals traversal) {
        LongList durations = new LongList();
        // The first one compiles the code and is not counted.
        for (int run = 0; run <= options.coldRuns(); run++) {
            try (OpenStore store = side.open()) {
                long nanos = Timing.nanos(() -> UnitOfWork.run(store.factory(), traversal::run));
                if (run > 0) {
                    durations.add(nanos);
                }
            }
        }
        results.add(traversal.id() + "_cold_ms", durations.quantile(0.5) / 1e6);
    }

    private void measureHot(EntityManagerFactory factory, Traversals traversal) {
        Duration each = options.duration().dividedBy(2);
        Runnable hot = () -> UnitOfWork.run(factory, traversal::run);
        results.add(traversal.id() + "_hot_ms", Timing.medianNanos(each, hot) / 1e6);
        results.profile(traversal + " hot: " + Profile.of(each, hot, server));
        EntityManager manager = factory.createEntityManager();
        double loaded = Timing.medianNanos(each, () -> {
            manager.getTransaction().begin();
            traversal.run(manager);
            manager.getTransaction().commit();
        });
        manager.close();
        results.add(traversal.id() + "_loaded_ms", loaded / 1e6);
    }

    private void measureQuery(EntityManagerFactory factory, Queries query) {
        Duration each = options.duration().dividedBy(Queries.values().length);
        Runnable action = () -> UnitOfWork.run(factory, query::run);
        results.add(query.id() + "_ms", Timing.medianNanos(each, action) / 1e6);
        results.profile(query + ": " + Profile.of(each, action, server));
    }
}
