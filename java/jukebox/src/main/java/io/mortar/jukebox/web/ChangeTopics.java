package io.mortar.jukebox.web;

import io.javalin.http.Context;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.Slice;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The topics that a page can watch: {@code library}, {@code account}, {@code artist:ID}, {@code album:ID},
 * {@code genre:ID} and {@code list:ID}.
 */
final class ChangeTopics {
    private static final int LIMIT = 8;
    private static final Slice ONE_TRACK = new Slice(0, 1);

    private ChangeTopics() {}

    /** The topics of a request by the identifiers of their objects. */
    static Map<String, String> of(Context context, AccountView account, MusicStore store) {
        List<String> topics = context.queryParams("topic");
        if (topics.isEmpty() || topics.size() > LIMIT) {
            throw new Refusal(Refusal.Reason.INVALID, "a page can watch 1 to " + LIMIT + " topics");
        }
        Map<String, String> byObject = new LinkedHashMap<>();
        for (String topic : topics) {
            byObject.put(object(topic, account, store), topic);
        }
        return byObject;
    }

    /** The identifier of the object of a topic. An account cannot watch a play list that it cannot read. */
    private static String object(String topic, AccountView account, MusicStore store) {
        int colon = topic.indexOf(':');
        String kind = colon < 0 ? topic : topic.substring(0, colon);
        String id = topic.substring(colon + 1);
        return switch (kind) {
            case "library" -> store.library().totals().id();
            case "account" -> account.id();
            case "list" -> store.playLists().get(account.id(), id).list().id();
            case "artist" -> store.library().artist(id).artist().id();
            case "album" -> store.library().album(id).album().id();
            case "genre" -> store.library().genre(id, ONE_TRACK).genre().id();
            default -> throw new Refusal(Refusal.Reason.INVALID, "there is no such topic");
        };
    }
}
