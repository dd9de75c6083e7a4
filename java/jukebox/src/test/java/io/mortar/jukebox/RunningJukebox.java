package io.mortar.jukebox;

import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.web.WebOptions;
import io.mortar.jukebox.web.WebServer;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.UUID;

/** Instances of the jukebox on one store. */
public final class RunningJukebox implements AutoCloseable {
    public static final long UPLOAD_BYTES = 4 << 20;
    private static final int FEW_ROUNDS = 1000;

    private final List<MusicStore> stores = new ArrayList<>();
    private final List<WebServer> servers = new ArrayList<>();

    public RunningJukebox(int instances) {
        this(instances, Set.of());
    }

    public RunningJukebox(int instances, Set<InetAddress> trustedProxies) {
        StoreFixture fixture = StoreFixture.load();
        String name = "jukebox" + UUID.randomUUID().toString().replace("-", "");
        for (int i = 0; i < instances; i++) {
            MusicStore store = fixture.open(name);
            stores.add(store);
            servers.add(
                    WebServer.start(store, new WebOptions("127.0.0.1", 0, UPLOAD_BYTES, FEW_ROUNDS, trustedProxies)));
        }
    }

    public MusicStore store() {
        return stores.get(0);
    }

    public String address(int instance) {
        return "http://127.0.0.1:" + servers.get(instance).port();
    }

    public Visitor visitor(int instance) {
        return new Visitor(address(instance));
    }

    @Override
    public void close() {
        servers.forEach(WebServer::close);
        stores.forEach(MusicStore::close);
    }
}
