package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.Refusal;
import java.util.regex.Pattern;

/** Keys of rows as text in addresses of pages. */
final class Identifiers {
    private static final Pattern FORM = Pattern.compile("\\d{1,18}");

    private Identifiers() {}

    /** @param what what a person calls the object */
    static long parse(String id, String what) {
        if (!FORM.matcher(id).matches()) {
            throw Refusal.notFound(what);
        }
        return Long.parseLong(id);
    }
}
