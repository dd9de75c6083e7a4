package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.Refusal;
import java.util.regex.Pattern;
import javax.jdo.JDOHelper;
import javax.jdo.JDOObjectNotFoundException;
import javax.jdo.JDOUserException;
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

    static boolean isValid(String id) {
        return id.length() <= LENGTH && FORM.matcher(id).matches();
    }

    /**
     * Loads the object that an address names.
     *
     * @param what what a person calls it
     */
    static <T> T load(PersistenceManager manager, Class<T> type, String id, String what) {
        if (!isValid(id)) {
            throw Refusal.notFound(what);
        }
        try {
            Object found = manager.getObjectById(type, id);
            if (type.isInstance(found)) {
                return type.cast(found);
            }
            throw Refusal.notFound(what);
        } catch (JDOObjectNotFoundException | JDOUserException | ClassCastException error) {
            throw Refusal.notFound(what);
        }
    }
}
