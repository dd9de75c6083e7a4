package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.Refusal;
import java.util.regex.Pattern;
import javax.jdo.JDOHelper;
import javax.jdo.JDOObjectNotFoundException;
import javax.jdo.PersistenceManager;
import org.datanucleus.identity.DatastoreId;

/** The identities of objects as text in addresses of pages. */
final class Identifiers {
    private static final Pattern FORM = Pattern.compile("[0-9a-f]+(\\.[0-9a-f]+){1,7}");
    private static final int LENGTH = 64;

    private Identifiers() {}

    static String of(Object object) {
        return ((DatastoreId) JDOHelper.getObjectId(object)).getKeyAsObject().toString();
    }

    /**
     * Loads the object that an address names.
     *
     * @param what what a person calls it
     */
    static <T> T load(PersistenceManager manager, Class<T> type, String id, String what) {
        if (id.length() > LENGTH || !FORM.matcher(id).matches()) {
            throw Refusal.notFound(what);
        }
        try {
            return manager.getObjectById(type, id);
        } catch (JDOObjectNotFoundException none) {
            throw Refusal.notFound(what);
        }
    }
}
