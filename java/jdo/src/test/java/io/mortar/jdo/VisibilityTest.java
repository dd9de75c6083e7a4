package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.jdo.model.Memo;
import io.mortar.jdo.model.Receipt;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import javax.jdo.JDOObjectNotFoundException;
import javax.jdo.JDOUserException;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;
import org.junit.jupiter.api.Test;

/** Tenants, soft delete, and the members that say who has created and changed an object. */
class VisibilityTest {
    private final String url = "mortar:memory:" + UUID.randomUUID();

    private Store store(Map<String, Object> more) {
        Map<String, Object> properties = new HashMap<>(more);
        properties.put("javax.jdo.option.ConnectionURL", url);
        return Store.with(properties);
    }

    private Store tenant(String name) {
        return store(Map.of("datanucleus.tenantId", name));
    }

    private static List<String> texts(PersistenceManager manager, String filter) {
        return manager.newQuery(Memo.class, filter).executeList().stream()
                .map(Memo::getText)
                .sorted()
                .toList();
    }

    private static int count(PersistenceManager manager) {
        int count = 0;
        for (Memo memo : manager.getExtent(Memo.class)) {
            assertNotNull(memo);
            count++;
        }
        return count;
    }

    @Test
    void a_tenant_does_not_find_the_objects_of_another() {
        try (Store first = tenant("a\"b\\c");
                Store second = tenant("b");
                Store none = store(Map.of())) {
            first.run(manager -> manager.makePersistent(new Memo(1, "of a")));
            second.run(manager -> manager.makePersistent(new Memo(2, "of b")));
            second.run(manager -> {
                assertEquals("of b", manager.getObjectById(Memo.class, 2L).getText());
                assertThrows(JDOObjectNotFoundException.class, () -> manager.getObjectById(Memo.class, 1L));
                assertEquals(List.of("of b"), texts(manager, null));
                assertEquals(List.of("of b"), texts(manager, "number == 1 || number == 2"));
                assertEquals(List.of("of b"), texts(manager, "text.substring(0, 2) == 'of'"));
                assertEquals(
                        1L,
                        manager.newQuery("select count(this) from " + Memo.class.getName())
                                .executeResultUnique());
                assertEquals(1, count(manager));
                assertEquals(1L, manager.newQuery(Memo.class).deletePersistentAll());
            });
            first.run(manager -> assertEquals(List.of("of a"), texts(manager, null)));
            none.run(manager -> assertEquals(List.of(), texts(manager, null)));
        }
    }

    @Test
    void a_tenant_reads_the_objects_of_others_if_it_is_configured_to_and_changes_none() {
        try (Store first = tenant("a");
                Store reader = store(Map.of("datanucleus.tenantId", "b", "datanucleus.tenantReadIds", "a,b"))) {
            first.run(manager -> manager.makePersistent(new Memo(1, "of a")));
            reader.run(manager -> assertEquals(List.of("of a"), texts(manager, null)));
            assertThrows(
                    JDOUserException.class,
                    () -> reader.run(
                            manager -> manager.getObjectById(Memo.class, 1L).setText("changed")));
            assertThrows(
                    JDOUserException.class,
                    () -> reader.run(manager -> manager.deletePersistent(manager.getObjectById(Memo.class, 1L))));
            first.run(manager ->
                    assertEquals("of a", manager.getObjectById(Memo.class, 1L).getText()));
        }
    }

    @Test
    void an_object_with_soft_delete_is_kept_and_not_found() {
        try (Store store = store(Map.of())) {
            Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Receipt(5))));
            store.run(manager -> {
                manager.deletePersistent(manager.getObjectById(id));
                assertEquals(List.of(), manager.newQuery(Receipt.class).executeList());
            });
            store.run(manager -> {
                assertThrows(JDOObjectNotFoundException.class, () -> manager.getObjectById(id));
                assertEquals(
                        List.of(),
                        manager.newQuery(Receipt.class, "amount == 5").executeList());
                assertFalse(manager.getExtent(Receipt.class).iterator().hasNext());
                Query<Receipt> all = manager.newQuery(Receipt.class, "amount == 5");
                all.addExtension("datanucleus.query.includeSoftDeletes", "true");
                assertEquals(5, all.executeList().get(0).getAmount());
            });
        }
    }

    @Test
    void members_say_who_has_created_and_changed_an_object() {
        try (Store ann = store(Map.of("datanucleus.CurrentUser", "ann"));
                Store bob = store(Map.of("datanucleus.CurrentUser", "bob"))) {
            ann.run(manager -> manager.makePersistent(new Memo(1, "x")));
            bob.run(manager -> {
                Memo memo = manager.getObjectById(Memo.class, 1L);
                assertEquals("ann", memo.getAuthor());
                assertNotNull(memo.getCreated());
                assertNull(memo.getEditor());
                assertNull(memo.getEdited());
                memo.setText("y");
            });
            ann.run(manager -> {
                Memo memo = manager.getObjectById(Memo.class, 1L);
                assertEquals("ann", memo.getAuthor());
                assertEquals("bob", memo.getEditor());
                assertNotNull(memo.getEdited());
            });
        }
    }
}
