package io.mortar.jukebox.web;

import io.javalin.http.Context;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.Slice;

/** Reads the values of a request, and refuses malformed ones. */
final class RequestInput {
    private static final int TEXT_LENGTH = 200;

    private RequestInput() {}

    static <T> T body(Context context, Class<T> type) {
        if (!context.isJson()) {
            throw new Refusal(Refusal.Reason.UNSUPPORTED, "the body must be of the type application/json");
        }
        String text = context.body();
        try {
            T body = context.jsonMapper().fromJsonString(text, type);
            if (body != null) {
                return body;
            }
        } catch (Exception malformed) {
            // Javalin does not declare the checked exceptions of Jackson.
            throw new Refusal(Refusal.Reason.INVALID, "the body is not the JSON that is expected here", malformed);
        }
        throw new Refusal(Refusal.Reason.INVALID, "the body is empty");
    }

    /** Text of a field that has to be there. */
    static String text(String value, String what) {
        String text = value == null ? "" : value.strip();
        if (text.isEmpty() || text.length() > TEXT_LENGTH || text.chars().anyMatch(Character::isISOControl)) {
            throw new Refusal(Refusal.Reason.INVALID, what + " has 1 to " + TEXT_LENGTH + " characters");
        }
        return text;
    }

    static String query(Context context, String name, String what) {
        return text(context.queryParam(name), what);
    }

    static Slice slice(Context context) {
        return new Slice(number(context.queryParam("offset"), 0), number(context.queryParam("limit"), Slice.LIMIT));
    }

    static int number(String text, int otherwise) {
        if (text == null) {
            return otherwise;
        }
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException malformed) {
            throw new Refusal(
                    Refusal.Reason.INVALID,
                    "a number is expected, not " + text.substring(0, Math.min(20, text.length())),
                    malformed);
        }
    }
}
