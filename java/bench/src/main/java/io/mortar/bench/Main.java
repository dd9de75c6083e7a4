package io.mortar.bench;

import io.mortar.bench.side.PersistenceSide;
import io.mortar.bench.workload.Crossings;
import io.mortar.bench.workload.EclipseStoreItems;
import io.mortar.bench.workload.FieldAccess;
import io.mortar.bench.workload.IdentityLookups;
import io.mortar.bench.workload.ItemStore;
import io.mortar.bench.workload.Navigation;
import io.mortar.bench.workload.PersistenceItems;
import io.mortar.bench.workload.SmallTransactions;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Applies a workload to a store and prints the results as one line on standard output. Everything else goes to standard
 * error. The exit code is 1 if something fails, or if the store does not return what was written.
 */
public final class Main {
    private static final Logger ROOT = Logger.getLogger("");

    private Main() {}

    public static void main(String[] arguments) {
        ROOT.setLevel(Level.WARNING);
        try {
            Options options = new Options(arguments);
            Results results = new Results();
            results.note("Java " + System.getProperty("java.vm.version") + ", " + System.getProperty("java.vm.name"));
            run(options, results);
            results.addMemory();
            System.out.println(results.json());
            System.out.flush();
            // Threads of libraries do not keep the process alive.
            Runtime.getRuntime().exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(Options options, Results results) throws Exception {
        PersistenceSide side = PersistenceSide.of(options.side(), options.url(), options.threads());
        if (side != null) {
            results.note(side.description());
        }
        switch (options.workload()) {
            case "transactions" -> {
                try (ItemStore store = side == null
                        ? new EclipseStoreItems(options.directory(), results)
                        : new PersistenceItems(side)) {
                    new SmallTransactions(options, store).run(results);
                }
            }
            case "lookups" -> IdentityLookups.run(options, side, results);
            case "navigation" -> new Navigation(options, side, results).run();
            case "fields" -> FieldAccess.run(options, side, results);
            case "crossings" -> Crossings.run(options, results);
            default -> throw new IllegalArgumentException(options.workload() + " is not a workload");
        }
    }
}
