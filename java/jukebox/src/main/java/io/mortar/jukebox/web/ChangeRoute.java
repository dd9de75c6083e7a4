package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.javalin.http.HandlerType;
import io.javalin.http.sse.SseClient;
import io.mortar.jukebox.model.ChangeWatch;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Sends server-sent events to pages: {@code ready} when the watch of a page has begun, and {@code changed} with the
 * topics of each change. Each page has a watch of the store and a thread that waits for it; nothing is polled.
 */
final class ChangeRoute implements AutoCloseable {
    private static final Logger LOG = Logger.getLogger(ChangeRoute.class.getName());
    private static final String PATH = "/api/changes";
    private static final String EVENTS = "text/event-stream";
    private static final String SUBSCRIPTION = "subscription";
    private static final int PAGES = 1000;
    /** Shorter than the time after which servers and proxies close an idle connection. */
    private static final int HEARTBEAT_SECONDS = 15;

    private final MusicStore store;
    private final Sessions sessions;
    private final Set<Page> open = ConcurrentHashMap.newKeySet();
    private final ExecutorService sending = Executors.newCachedThreadPool(task -> daemon(task, "jukebox-changes"));
    private final ScheduledExecutorService heartbeat =
            Executors.newSingleThreadScheduledExecutor(task -> daemon(task, "jukebox-heartbeat"));

    /** @param topics by the identifiers of their objects */
    private record Subscription(ChangeWatch watch, Map<String, String> topics) {}

    private record Page(Subscription subscription, EventStream events) {}

    ChangeRoute(MusicStore store, Sessions sessions) {
        this.store = store;
        this.sessions = sessions;
        heartbeat.scheduleWithFixedDelay(this::sendHeartbeats, HEARTBEAT_SECONDS, HEARTBEAT_SECONDS, TimeUnit.SECONDS);
    }

    private static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    void add(RoutesConfig routes) {
        // A refusal is a plain response: the stream has not begun.
        routes.before(PATH, this::subscribe);
        routes.sse(PATH, this::begin);
    }

    private void subscribe(Context context) {
        if (context.method() != HandlerType.GET || !EVENTS.equals(context.header("Accept"))) {
            throw new Refusal(Refusal.Reason.INVALID, "changes are read by GET, and the header Accept is " + EVENTS);
        }
        if (open.size() >= PAGES) {
            throw new Refusal(Refusal.Reason.TOO_MANY, "too many pages are open");
        }
        Map<String, String> topics = ChangeTopics.of(context, sessions.account(context), store);
        context.attribute(SUBSCRIPTION, new Subscription(store.watch(topics.keySet()), topics));
    }

    private void begin(SseClient client) {
        Subscription subscription = client.ctx().attribute(SUBSCRIPTION);
        Page page = new Page(subscription, new EventStream(client));
        open.add(page);
        client.onClose(() -> forget(page));
        client.keepAlive();
        page.events().send("ready", subscription.topics().values());
        sending.execute(() -> serve(page, () -> report(page)));
    }

    private static void report(Page page) {
        Subscription subscription = page.subscription();
        try {
            while (!page.events().isOver()) {
                Set<String> changed = subscription.watch().next();
                if (changed.isEmpty()) {
                    break;
                }
                page.events()
                        .send(
                                "changed",
                                changed.stream().map(subscription.topics()::get).toList());
            }
        } finally {
            page.events().close();
        }
    }

    /** Each heartbeat has a thread, so a browser that reads nothing delays only its own. */
    private void sendHeartbeats() {
        open.forEach(page -> sending.execute(() -> serve(page, page.events()::sendHeartbeat)));
    }

    /** Runs work for a page, and ends its stream if that fails. */
    private static void serve(Page page, Runnable work) {
        try {
            work.run();
        } catch (RuntimeException error) {
            // The browser connects again, to this instance or another one.
            LOG.log(Level.INFO, "the changes for a page end: {0}", error.toString());
            page.events().close();
        }
    }

    private void forget(Page page) {
        if (open.remove(page)) {
            page.subscription().watch().close();
        }
    }

    @Override
    public void close() {
        heartbeat.shutdownNow();
        open.forEach(page -> page.events().close());
        sending.shutdown();
    }
}
