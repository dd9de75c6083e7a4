package io.mortar.jdo;

import io.mortar.jdo.model.Node;
import java.lang.management.ManagementFactory;
import java.util.Map;
import javax.jdo.Extent;

/** Counts the nodes in the directory of its argument, in their extent and as the result of a query. */
final class IterationProgram {
    private static final int SAMPLED = 10_000;

    private long mostUsed;

    private IterationProgram() {}

    public static void main(String[] arguments) {
        IterationProgram program = new IterationProgram();
        try (Store store = Store.with(Map.of("javax.jdo.option.ConnectionURL", "mortar:embedded:" + arguments[0]))) {
            long ofExtent = store.call(manager -> {
                Extent<Node> extent = manager.getExtent(Node.class, true);
                long count = program.count(extent);
                extent.closeAll();
                return count;
            });
            long ofQuery = store.call(manager ->
                    program.count(manager.newQuery(Node.class, "number >= 0").executeList()));
            System.out.println("extent " + ofExtent + ", query " + ofQuery + ", at most " + (program.mostUsed >> 20)
                    + " MiB of the heap after a collection");
        }
    }

    private long count(Iterable<Node> nodes) {
        long count = 0;
        long sum = 0;
        for (Node node : nodes) {
            sum += node.getNumber();
            if (++count % (SAMPLED * 10) == 0 || count == SAMPLED) {
                System.gc();
                mostUsed = Math.max(
                        mostUsed,
                        ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed());
            }
        }
        if (sum != count * (count - 1) / 2) {
            throw new IllegalStateException("the " + count + " numbers have the sum " + sum);
        }
        return count;
    }
}
