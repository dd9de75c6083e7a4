package io.mortar.jdo;

import io.mortar.Client;
import io.mortar.ContentOutputStream;
import io.mortar.NativeHandles;
import io.mortar.Oid;
import io.mortar.Rows;
import io.mortar.Transaction;
import io.mortar.Watch;
import io.mortar.jdo.model.Person;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.jdo.PersistenceManager;

/**
 * Opens and closes what has native memory, many times, and compares the number of handles and the resident memory of
 * the process before and after. The heap of Java has a fixed size and is resident from the start.
 */
final class LeakProgram {
    private static final int WARM_UP = 300;
    private static final int MOST_PHASES = 15;
    private static final int ROUNDS = 200;
    /**
     * A leak grows in each phase; what compiled code and caches need grows in some, in more of them on a busy machine.
     * 2 KiB that each round leaks are 400 KiB.
     */
    private static final long PERMITTED_BYTES = 400 << 10;

    private final Store store;
    private final Client client;
    private final Object id;
    private final Oid blob;

    private LeakProgram(Store store) {
        this.store = store;
        client = store.client();
        id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 5))));
        Transaction[] last = new Transaction[1];
        Oid created = client.transact(transaction -> {
            last[0] = transaction;
            return transaction.createBlob(new byte[10_000]);
        });
        blob = last[0].realOid(created).orElseThrow();
    }

    public static void main(String[] arguments) throws IOException {
        // A small cache of pages is full after the warm-up.
        try (Store store = Store.with(Map.of("mortar.cacheBytes", "4000000"))) {
            LeakProgram program = new LeakProgram(store);
            program.use(WARM_UP);
            long handles = NativeHandles.open();
            long resident = residentBytes();
            List<Long> growths = new ArrayList<>();
            boolean isLevel = false;
            while (!isLevel && growths.size() < MOST_PHASES) {
                program.use(ROUNDS);
                long now = residentBytes();
                growths.add(now - resident);
                isLevel = now - resident <= PERMITTED_BYTES;
                resident = now;
            }
            long opened = NativeHandles.open() - handles;
            boolean isBounded = opened <= 0 && isLevel;
            System.out.println(opened + " more handles, and more resident bytes in each phase of " + ROUNDS
                    + " rounds: " + growths + (isBounded ? ": ok" : ": a leak"));
        }
    }

    private void use(int rounds) throws IOException {
        for (int round = 0; round < rounds; round++) {
            useAll(round);
        }
        System.gc();
    }

    private void useAll(int round) throws IOException {
        try (Transaction transaction = client.begin()) {
            transaction.get(blob);
        }
        try (Transaction transaction = client.begin()) {
            transaction.append(transaction.createBlob(new byte[1]), new byte[1]);
            transaction.abort();
        }
        try (Rows rows = client.query("from Person")) {
            rows.next();
        }
        try (InputStream in = client.read(blob)) {
            in.read();
        }
        try (Watch watch = client.watch(List.of(blob))) {
            if (watch.toString().isEmpty()) {
                throw new IllegalStateException();
            }
        }
        if (round % 20 == 0) {
            try (ContentOutputStream out = client.contentOutput()) {
                out.write(new byte[100]);
            }
            client.events().close();
            client.objects().close();
        }
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().begin();
            ((Person) manager.getObjectById(id)).getName();
            manager.newQuery(Person.class, "age > 1").executeList().size();
            if (round % 8 == 0) {
                ((Person) manager.getObjectById(id)).setAge(5 + round % 7);
                manager.currentTransaction().commit();
            } else {
                manager.currentTransaction().rollback();
            }
        }
    }

    /** The resident memory of this process; 0 where the system does not tell it in the way of Linux. */
    private static long residentBytes() throws IOException {
        Path status = Path.of("/proc/self/status");
        if (!Files.exists(status)) {
            return 0;
        }
        return Files.readAllLines(status).stream()
                .filter(line -> line.startsWith("VmRSS:"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) << 10)
                .findFirst()
                .orElse(0);
    }
}
