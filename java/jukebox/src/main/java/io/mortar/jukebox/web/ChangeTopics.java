package io.mortar.jukebox.web;

import io.javalin.http.Context;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a page wants to hear about: {@code library}, {@code account}, and {@code artist:ID}, {@code list:ID} and the
 * like.
 */
final class ChangeTopics {
    private static final int LIMIT = 8;

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

    private static String object(String topic, AccountView account, MusicStore store) {
        int colon = topic.indexOf(':');
        String kind = colon < 0 ? topic : topic.substring(0, colon);
        String id = topic.substring(colon + 1);
        return switch (kind) {
            case "library" -> store.library().totals().id();
            case "account" -> account.id();
            // Refuses a list of somebody else.
            case "list" -> store.playLists().get(account.id(), id).list().id();
            case "artist", "album", "genre" -> id;
            default -> throw new Refusal(Refusal.Reason.INVALID, "there is no such topic");
        };
    }
}
