package io.mortar.jukebox.web;

import io.javalin.Javalin;
import io.javalin.compression.CompressionStrategy;
import io.javalin.config.JavalinConfig;
import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.javalin.http.staticfiles.Location;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import java.io.IOException;
import java.time.Clock;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.eclipse.jetty.io.EofException;

/** Serves the pages of a jukebox, and the JSON that they are made of. */
public final class WebServer implements AutoCloseable {
    private static final Logger LOG = Logger.getLogger(WebServer.class.getName());
    private static final int BODY_BYTES = 16 * 1024;
    private static final int STOP_MS = 5_000;

    private final ChangeRoute changes;
    private final Javalin server;

    private WebServer(MusicStore store, WebOptions options) {
        Sessions sessions = new Sessions(store.accounts());
        changes = new ChangeRoute(store, sessions);
        AccountRoutes accounts = new AccountRoutes(
                store.accounts(),
                sessions,
                new PasswordHasher(options.hashRounds()),
                new LoginThrottle(Clock.systemUTC()),
                options.uploadBytes());
        server = Javalin.create(config -> {
            configure(config);
            config.contextResolver.ip = new BrowserAddress(options.trustedProxies())::of;
            mapErrors(config.routes);
            config.routes.before(RequestGuard::before);
            config.routes.get("/api/health", context -> {
                store.library().totals();
                context.result("ok");
            });
            accounts.add(config.routes);
            new LibraryRoutes(store.library(), sessions).add(config.routes);
            new UploadRoute(store.library(), sessions, options.uploadBytes()).add(config.routes);
            new AudioRoute(store.library(), sessions).add(config.routes);
            new PlayListRoutes(store.playLists(), sessions).add(config.routes);
            changes.add(config.routes);
        });
    }

    /**
     * Starts to serve. The caller closes the store after the server.
     *
     * @throws io.javalin.util.JavalinBindException if the port is in use
     */
    public static WebServer start(MusicStore store, WebOptions options) {
        WebServer server = new WebServer(store, options);
        try {
            server.server.start(options.host(), options.port());
        } catch (RuntimeException error) {
            server.changes.close();
            throw error;
        }
        return server;
    }

    private static void configure(JavalinConfig config) {
        config.startup.showJavalinBanner = false;
        config.startup.startupWatcherEnabled = false;
        config.http.maxRequestSize = BODY_BYTES;
        // Compression would delay events, and audio is compressed.
        config.http.compressionStrategy = CompressionStrategy.NONE;
        config.jetty.modifyHttpConfiguration(http -> http.setSendServerVersion(false));
        config.jetty.modifyServer(server -> server.setStopTimeout(STOP_MS));
        config.staticFiles.add(files -> {
            files.directory = "/web";
            files.location = Location.CLASSPATH;
            files.headers = Map.of("Cache-Control", "no-cache");
        });
    }

    private static void mapErrors(RoutesConfig routes) {
        routes.exception(Refusal.class, (refusal, context) -> {
            if (refusal.reason() == Refusal.Reason.UNAVAILABLE) {
                LOG.log(Level.WARNING, refusal.getMessage(), refusal.getCause());
            }
            fail(context, refusal.reason().status(), refusal.getMessage());
        });
        routes.exception(Exception.class, (error, context) -> {
            Level level = isBrowserGone(error) ? Level.FINE : Level.SEVERE;
            LOG.log(level, context.method() + " " + context.path(), error);
            fail(context, 500, "the service has failed; its log says why");
        });
    }

    /**
     * Whether the browser has closed the connection, as it does when a person skips a track, or reads no more, as when
     * the person pauses it. The store can fail while a response is sent, too: those errors are of other classes.
     */
    private static boolean isBrowserGone(Exception error) {
        return error instanceof EofException
                || error instanceof IOException && error.getCause() instanceof TimeoutException;
    }

    private static void fail(Context context, int status, String message) {
        if (!context.res().isCommitted()) {
            context.status(status).json(Map.of("error", message));
        }
    }

    public int port() {
        return server.port();
    }

    /** Ends the streams of changes, waits for running requests for a short time, and stops. */
    @Override
    public void close() {
        changes.close();
        server.stop();
    }
}
