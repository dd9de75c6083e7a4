package io.mortar.jdo;

import io.mortar.Client;
import io.mortar.ConnectOptions;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * Where a connection URL says that the objects are.
 *
 * <ul>
 *   <li>{@code mortar://HOST:PORT/SPACE}, also with several hosts or {@code ?group=NAME}: a cluster; {@code mortars://}
 *       over TLS, {@code mortar+unix:///SOCKET/SPACE} on this machine
 *   <li>{@code mortar:embedded:DIRECTORY}: a cluster in this process, on a directory as of {@code mortar dev --data}
 *   <li>{@code mortar:memory:NAME}: a cluster in this process without a directory; the part {@code :NAME} is optional
 * </ul>
 *
 * All persistence managers of the process that have the same directory, or the same name, share one client. A store in
 * memory ends with the last of them.
 */
final class StoreLocation {
    private static final List<String> CLUSTER = List.of("mortar://", "mortars://", "mortar+unix://");
    private static final String EMBEDDED = "mortar:embedded:";
    private static final String MEMORY = "mortar:memory";

    private static final Map<String, Shared> SHARED = new HashMap<>();

    /** A client with the number of its users. */
    private static final class Shared {
        private final Client client;
        private int users;

        Shared(Client client) {
            this.client = client;
        }
    }

    private final String url;
    /** The key of a shared client, or null. */
    private final String key;

    private StoreLocation(String url, String key) {
        this.url = url;
        this.key = key;
    }

    private static boolean isCluster(String url) {
        return CLUSTER.stream().anyMatch(url::startsWith);
    }

    static StoreLocation parse(String url) {
        if (isCluster(url) || url.equals(MEMORY)) {
            return new StoreLocation(url, null);
        }
        if (url.startsWith(EMBEDDED) && url.length() > EMBEDDED.length()) {
            return new StoreLocation(
                    url, EMBEDDED + directory(url).toAbsolutePath().normalize());
        }
        if (url.startsWith(MEMORY + ':') && url.length() > MEMORY.length() + 1) {
            return new StoreLocation(url, url);
        }
        throw new NucleusUserException("the connection URL " + url
                + " is not understood: it is mortar://HOST:PORT/SPACE, mortars://HOST:PORT/SPACE, mortar+unix:///SOCKET/SPACE, "
                + "mortar:embedded:DIRECTORY, mortar:memory or mortar:memory:NAME");
    }

    private static Path directory(String url) {
        return Path.of(url.substring(EMBEDDED.length()));
    }

    /** Connects to the cluster, or opens it. */
    Client open(ConnectOptions options) {
        if (key == null) {
            return connect(options);
        }
        synchronized (SHARED) {
            Shared shared = SHARED.get(key);
            if (shared == null) {
                shared = new Shared(connect(options));
                SHARED.put(key, shared);
            }
            shared.users++;
            return shared.client;
        }
    }

    private Client connect(ConnectOptions options) {
        if (isCluster(url)) {
            return Client.connect(url, options);
        }
        return url.startsWith(EMBEDDED) ? Client.open(directory(url), options) : Client.inMemory(options);
    }

    /** Gives up a client that {@link #open} has returned. */
    void close(Client client) {
        if (key == null) {
            client.close();
            return;
        }
        synchronized (SHARED) {
            Shared shared = SHARED.get(key);
            if (--shared.users == 0) {
                SHARED.remove(key);
                client.close();
            }
        }
    }
}
