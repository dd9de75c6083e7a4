package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.Change;
import io.mortar.Client;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.StoredObject;
import io.mortar.jdo.entities.Pen;
import io.mortar.jdo.entities.Shelf;
import io.mortar.jdo.model.AllTypes;
import io.mortar.jdo.model.Person;
import jakarta.persistence.EntityExistsException;
import jakarta.persistence.RollbackException;
import java.util.List;
import java.util.Map;
import javax.jdo.JDOException;
import javax.jdo.JDOUserException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Mistakes of programs are reported with what is wrong, also if no object is concerned yet. */
class ClearErrorsTest extends EntityTest {
    private static void assertSays(Throwable error, String... parts) {
        for (String part : parts) {
            assertTrue(String.valueOf(error.getMessage()).contains(part), error.toString());
        }
    }

    @Test
    void an_entity_whose_identity_is_taken_exists() {
        run(manager -> manager.persist(new Pen(1, "red")));
        RollbackException error =
                assertThrows(RollbackException.class, () -> run(manager -> manager.persist(new Pen(1, "blue"))));
        assertInstanceOf(EntityExistsException.class, error.getCause().getCause());
        error = assertThrows(RollbackException.class, () -> run(manager -> manager.persist(new Pen(2, "red"))));
        assertFalse(
                error.getCause().getCause() instanceof EntityExistsException, "another unique member has the value");
        run(manager -> assertEquals("red", manager.find(Pen.class, 1L).getLabel()));
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            value = {
                "SELECT p FROM Pen p WHERE p.nothing = 3 => nothing",
                "SELECT p.nothing FROM Pen p => nothing",
                "SELECT p FROM Pen p ORDER BY p.nothing => nothing",
                "SELECT COUNT(p) FROM Pen p GROUP BY p.nothing => nothing",
                "SELECT a FROM Album a WHERE a.artist.nothing = 'x' => nothing",
                "SELECT t FROM Album a JOIN a.tracks t WHERE t.nothing = 'x' => nothing",
                "SELECT a FROM Album a WHERE EXISTS (SELECT b FROM Album b WHERE b.nothing = a.year) => nothing",
                "UPDATE Pen p SET p.nothing = 3 => nothing",
                "SELECT p FROM Pen p WHERE NO_SUCH(p.label) = 'x' => NO_SUCH",
                "SELECT NO_SUCH(p.label) FROM Pen p => NO_SUCH",
                "SELECT p FROM Pen p WHERE FUNCTION('NO_SUCH', p.label) = 'x' => NO_SUCH",
            })
    void a_query_with_an_unknown_name_is_refused_if_no_row_is_found(String text, String name) {
        run(manager -> {
            RuntimeException error = assertThrows(RuntimeException.class, () -> {
                var query = manager.createQuery(text);
                if (text.startsWith("UPDATE")) {
                    query.executeUpdate();
                } else {
                    query.getResultList();
                }
            });
            assertSays(error, name);
            if (!manager.getTransaction().isActive()) {
                manager.getTransaction().begin();
            }
        });
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "select from io.mortar.jdo.model.Person where nothing == 3",
                "select from io.mortar.jdo.model.Person where boss.nothing == 3",
                "select from io.mortar.jdo.model.Person order by nothing",
                "select nothing from io.mortar.jdo.model.Person",
                "select from io.mortar.jdo.model.Person where name.nothing() == 3",
                "select from io.mortar.jdo.model.Person where nothing(name) == 3",
                "select from io.mortar.jdo.model.nothing",
                "select from io.mortar.jdo.model.Person where friends.contains(f) && f.age > 3 variables io.mortar.nothing f",
                "select new io.mortar.nothing(name) from io.mortar.jdo.model.Person",
                "select from nothing",
            })
    void a_query_of_jdo_with_an_unknown_name_is_refused_if_no_row_is_found(String text) {
        try (Store store = Store.inMemory()) {
            store.run(manager -> {
                JDOException error = assertThrows(
                        JDOException.class, () -> manager.newQuery(text).execute());
                assertSays(error, text.contains("boss.") ? "boss" : "nothing");
                manager.currentTransaction().setRollbackOnly();
                manager.currentTransaction().rollback();
                manager.currentTransaction().begin();
            });
        }
    }

    @Test
    void a_query_of_an_unknown_class_is_refused() {
        try (Store store = Store.inMemory()) {
            store.run(manager -> {
                assertThrows(
                        JDOUserException.class,
                        () -> manager.newQuery(String.class).executeList());
                assertThrows(
                        JDOUserException.class,
                        () -> manager.newQuery(String.class, "length() == 3").executeList());
                assertThrows(
                        JDOUserException.class,
                        () -> manager.newQuery("select from java.lang.String").execute());
                assertThrows(
                        JDOUserException.class,
                        () -> manager.newQuery("select from no.such.Thing").execute());
                assertThrows(
                        JDOUserException.class,
                        () -> manager.newQuery("select from no.such.Thing where size == 3")
                                .execute());
                assertThrows(
                        JDOUserException.class,
                        () -> manager.newQuery((Class<Person>) null, "age > 3").executeList());
                manager.currentTransaction().setRollbackOnly();
                manager.currentTransaction().rollback();
                manager.currentTransaction().begin();
            });
        }
    }

    @Test
    void a_constant_that_was_removed_is_named() {
        try (Store store = Store.inMemory()) {
            Object id = store.call(manager -> {
                AllTypes types = manager.makePersistent(new AllTypes());
                types.color = AllTypes.Color.RED;
                return manager.getObjectId(types);
            });
            Client client = store.client();
            int color = client.schema()
                    .classNamed(AllTypes.class.getName())
                    .orElseThrow()
                    .field("color")
                    .orElseThrow()
                    .number();
            client.run(transaction -> {
                try (Rows rows = transaction.query("from `" + AllTypes.class.getName() + "`", Map.of())) {
                    Row row = rows.next();
                    io.mortar.Record changed =
                            row.record().toBuilder().set(color, "PURPLE").build();
                    transaction.write(List.of(Change.replace(row.oid(), StoredObject.record(changed))));
                }
            });
            store.run(manager -> {
                JDOException error =
                        assertThrows(JDOException.class, () -> ((AllTypes) manager.getObjectById(id)).color.name());
                assertSays(error, "PURPLE", "AllTypes.color", "Color");
            });
        }
    }

    @Test
    void a_large_object_needs_bytes() {
        assertSays(assertThrows(NullPointerException.class, () -> LargeObject.of((byte[]) null)), "bytes");
        assertSays(assertThrows(NullPointerException.class, () -> LargeObject.of((java.nio.file.Path) null)), "file");
        assertSays(assertThrows(NullPointerException.class, () -> LargeObject.of((java.io.InputStream) null)), "bytes");
    }

    @Test
    void a_list_without_an_order_of_its_own_has_that_of_the_keys() {
        run(manager -> {
            Shelf shelf = new Shelf(1);
            shelf.getPens().addAll(List.of(new Pen(3, "c"), new Pen(1, "b"), new Pen(2, "a")));
            manager.persist(shelf);
        });
        run(manager -> assertEquals(
                List.of("b", "a", "c"),
                manager.find(Shelf.class, 1L).getPens().stream()
                        .map(Pen::getLabel)
                        .toList()));
    }
}
