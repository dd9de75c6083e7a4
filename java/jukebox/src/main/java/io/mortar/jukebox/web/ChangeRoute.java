package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.javalin.http.HandlerType;
import io.javalin.http.sse.SseClient;
import io.mortar.jukebox.model.ChangeWatch;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import java.util.List;
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
 * Tells pages what has changed, as server-sent events: {@code ready} when changes from now on are told, and
 * {@code changed} with topics. Each page has a watch of the store and a thread that waits for it; nothing is polled.
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
    private final Set<Subscription> open = ConcurrentHashMap.newKeySet();
    private final ExecutorService waiting = Executors.newCachedThreadPool(task -> daemon(task, "jukebox-changes"));
    private final ScheduledExecutorService heartbeat =
            Executors.newSingleThreadScheduledExecutor(task -> daemon(task, "jukebox-heartbeat"));

    private record Subscription(ChangeWatch watch, Map<String, String> topics, SseClient client) {}

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
        context.attribute(SUBSCRIPTION, new Subscription(store.watch(topics.keySet()), topics, null));
    }

    private void begin(SseClient client) {
        Subscription asked = client.ctx().attribute(SUBSCRIPTION);
        Subscription subscription = new Subscription(asked.watch(), asked.topics(), client);
        open.add(subscription);
        client.onClose(() -> end(subscription));
        client.keepAlive();
        // With data: browsers ignore an event without.
        client.sendEvent("ready", List.copyOf(subscription.topics().values()));
        waiting.execute(() -> report(subscription));
    }

    private void report(Subscription subscription) {
        try {
            while (!subscription.client().terminated()) {
                Set<String> changed = subscription.watch().next();
                if (changed.isEmpty()) {
                    break;
                }
                List<String> topics =
                        changed.stream().map(subscription.topics()::get).toList();
                subscription.client().sendEvent("changed", topics);
            }
        } catch (RuntimeException error) {
            // The browser connects again, to this instance or another one.
            LOG.log(Level.INFO, "the changes for a page end: {0}", error.toString());
        } finally {
            subscription.client().close();
            end(subscription);
        }
    }

    private void end(Subscription subscription) {
        if (open.remove(subscription)) {
            subscription.watch().close();
        }
    }

    /** Finds out which browsers are gone. */
    private void sendHeartbeats() {
        for (Subscription subscription : open) {
            try {
                subscription.client().sendComment("");
            } catch (RuntimeException gone) {
                end(subscription);
            }
        }
    }

    @Override
    public void close() {
        heartbeat.shutdownNow();
        for (Subscription subscription : open) {
            subscription.client().close();
            end(subscription);
        }
        waiting.shutdown();
    }
}
