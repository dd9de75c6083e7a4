package io.mortar.histories;

import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import javax.jdo.JDOHelper;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;
import org.datanucleus.identity.DatastoreId;

/** The main class: connects, and gives each request to the thread of its client. It ends with its standard input. */
public final class Worker {
    /**
     * The system property that plants a fault if it is true: transactions of JDO retain the values that objects had in
     * the transaction before, so they may be outdated.
     */
    static final String RETAIN_VALUES = "mortar.histories.retainValues";

    /** The time limit of a call, in milliseconds. It is short, because servers fail. */
    private static final String TIMEOUT_MS = "2000";

    private static final long CONNECT_PAUSE_MS = 50;

    private final PersistenceManagerFactory jdo;
    private final EntityManagerFactory jakarta;
    private final Replies replies;
    private final Map<String, String> objects = new ConcurrentHashMap<>();
    private final Map<Integer, HistoryClient> clients = new HashMap<>();

    /** Connects to a store; waits while no server answers. */
    Worker(String url, Replies replies) {
        this.replies = replies;
        jdo = untilAvailable(() -> JDOHelper.getPersistenceManagerFactory(Map.of(
                "javax.jdo.PersistenceManagerFactoryClass", "org.datanucleus.api.jdo.JDOPersistenceManagerFactory",
                "javax.jdo.option.ConnectionURL", url,
                "datanucleus.datastoreReadTimeout", TIMEOUT_MS,
                "datanucleus.datastoreWriteTimeout", TIMEOUT_MS,
                "mortar.snapshot", "true")));
        jakarta = untilAvailable(() -> Persistence.createEntityManagerFactory(
                "histories",
                Map.of(
                        "jakarta.persistence.jdbc.url", url,
                        "datanucleus.datastoreReadTimeout", TIMEOUT_MS,
                        "datanucleus.datastoreWriteTimeout", TIMEOUT_MS)));
    }

    private static <T> T untilAvailable(Supplier<T> connect) {
        while (true) {
            try {
                return connect.get();
            } catch (RuntimeException error) {
                if (!Failure.isRetryable(Failure.chain(error, each -> List.of()))) {
                    throw error;
                }
            }
            try {
                Thread.sleep(CONNECT_PAUSE_MS);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException("interrupted before it was connected", interrupted);
            }
        }
    }

    /** Starts the worker for the store with a URL, the only argument. */
    public static void main(String[] arguments) throws IOException {
        PrintStream out = System.out;
        // What libraries print is no reply.
        System.setOut(System.err);
        new Worker(arguments[0], new Replies(out)).serve(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.exit(0);
    }

    /** Serves requests until the input ends. */
    void serve(Reader input) throws IOException {
        replies.send(0, "ready");
        BufferedReader lines = new BufferedReader(input);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] verbAndRest = line.split(" ", 2);
            String rest = verbAndRest[1];
            switch (verbAndRest[0]) {
                case "object" -> objects.put(rest.split(" ")[0], rest.split(" ")[1]);
                case "create" -> create(rest.split(" "));
                case "run" -> {
                    Request request = Request.parse(rest);
                    clients.computeIfAbsent(request.client(), this::startClient).request(request);
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private HistoryClient startClient(int number) {
        JdoSession session = new JdoSession(jdo, Boolean.getBoolean(RETAIN_VALUES));
        HistoryClient client = new HistoryClient(objects, replies, session, new JakartaSession(jakarta));
        Thread thread = new Thread(client, "client " + number);
        thread.setDaemon(true);
        thread.start();
        return client;
    }

    /** Creates the object of {@code NUMBER KEY [BALANCE]}. */
    private void create(String[] words) {
        String key = words[1];
        Object created = words.length == 2 ? new GrowingList(key) : new Account(key, Long.parseLong(words[2]));
        try (PersistenceManager manager = jdo.getPersistenceManager()) {
            manager.setProperty("mortar.snapshot", "false");
            manager.currentTransaction().begin();
            manager.makePersistent(created);
            manager.currentTransaction().commit();
            Object oid = ((DatastoreId) manager.getObjectId(created)).getKeyAsObject();
            replies.send(Long.parseLong(words[0]), "created " + oid);
        }
    }

    /** Disconnects. */
    void close() {
        jakarta.close();
        jdo.close();
    }
}
