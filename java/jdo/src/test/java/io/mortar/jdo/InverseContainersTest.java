package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Book;
import io.mortar.jdo.model.Department;
import io.mortar.jdo.model.Employee;
import io.mortar.jdo.model.Library;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiConsumer;
import java.util.stream.Stream;
import javax.jdo.JDOUserException;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** JDO 3.2, section 15.3: a change of one side of a relation changes the other side. */
class InverseContainersTest {
    private Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private void restart(Map<String, Object> properties) {
        store.close();
        store = Store.with(properties);
    }

    private static Set<String> titles(Collection<Book> books) {
        Set<String> titles = new TreeSet<>();
        books.forEach(each -> titles.add(each.getTitle()));
        return titles;
    }

    private Object library(String... titles) {
        return store.call(manager -> {
            Library library = new Library();
            for (String title : titles) {
                Book book = new Book(title);
                library.getBooks().add(book);
                library.getByTitle().put(title, book);
                library.getCopies().put(book, title.length());
                library.getDisplayed().add(book);
            }
            return manager.getObjectId(manager.makePersistent(library));
        });
    }

    private static Book book(PersistenceManager manager, String title) {
        return manager.newQuery(Book.class, "title == '" + title + "'")
                .executeList()
                .get(0);
    }

    static Stream<Arguments> changes() {
        List<Named<BiConsumer<Library, Set<Book>>>> changes = List.of(
                Named.of("clear", (library, without) -> library.getBooks().clear()),
                Named.of("removeAll", (library, without) -> library.getBooks().removeAll(without)),
                Named.of("retainAll", (library, without) -> {
                    Set<Book> with = new HashSet<>(library.getBooks());
                    with.removeAll(without);
                    library.getBooks().retainAll(with);
                }),
                Named.of("assignment", (library, without) -> {
                    Set<Book> with = new HashSet<>(library.getBooks());
                    with.removeAll(without);
                    library.setBooks(with);
                }));
        return changes.stream().flatMap(each -> Stream.of(Arguments.of(each, true), Arguments.of(each, false)));
    }

    @ParameterizedTest
    @MethodSource("changes")
    void removed_elements_do_not_refer_to_the_owner(BiConsumer<Library, Set<Book>> change, boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = library("Emma", "Ulysses");
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            change.accept(library, Set.of(book(manager, "Emma")));
        });
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            Book ulysses = book(manager, "Ulysses");
            assertEquals(titles(library.getBooks()).contains("Ulysses") ? library : null, ulysses.getLibrary());
            assertNull(book(manager, "Emma").getLibrary());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void added_elements_refer_to_the_owner(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = library();
        Object stored = store.call(manager -> manager.getObjectId(manager.makePersistent(new Book("Emma"))));
        Library detached = store.call(manager -> manager.detachCopy((Library) manager.getObjectById(id)));
        detached.getBooks().add(new Book("Persuasion"));
        store.run(manager -> {
            Library library = manager.makePersistent(detached);
            library.getBooks().add((Book) manager.getObjectById(stored, false));
            library.getBooks().add(new Book("Ulysses"));
        });
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            assertEquals(Set.of("Emma", "Persuasion", "Ulysses"), titles(library.getBooks()));
            assertSame(library, book(manager, "Ulysses").getLibrary());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void elements_that_become_persistent_with_an_indexed_list_refer_to_its_owner(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = library("Emma", "Ulysses");
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            assertSame(library, book(manager, "Emma").getWindow());
            assertSame(library, book(manager, "Ulysses").getWindow());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_element_leaves_its_former_owner(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object first = library("Emma");
        Object second = library("Ulysses");
        store.run(manager -> {
            Library from = (Library) manager.getObjectById(first);
            Library to = (Library) manager.getObjectById(second);
            Book emma = from.getBooks().iterator().next();
            to.setBooks(new HashSet<>(Set.of(emma)));
            to.getDisplayed().add(emma);
            manager.flush();
            assertEquals(Set.of(), from.getBooks());
        });
        store.run(manager -> {
            assertEquals(List.of(), ((Library) manager.getObjectById(first)).getDisplayed());
            Library to = (Library) manager.getObjectById(second);
            assertEquals(Set.of("Emma"), titles(to.getBooks()));
            assertEquals(Set.of("Emma", "Ulysses"), titles(to.getDisplayed()));
            assertNull(book(manager, "Ulysses").getLibrary());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void maps_have_the_objects_that_refer_to_the_owner(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = library("Emma", "Ulysses");
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            assertEquals(Set.of("Emma", "Ulysses"), library.getByTitle().keySet());
            assertEquals(4, library.getCopies().get(library.getByTitle().get("Emma")));
            library.getByTitle().put("Dubliners", new Book("Dubliners"));
            library.getCopies().put(library.getByTitle().get("Emma"), 9);
            library.getCopies().remove(library.getByTitle().get("Ulysses"));
            library.getByTitle().remove("Ulysses");
        });
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            assertEquals(Set.of("Dubliners", "Emma"), library.getByTitle().keySet());
            assertEquals(Map.of(book(manager, "Emma"), 9), library.getCopies());
            assertNull(book(manager, "Ulysses").getCatalogue());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_owner_and_its_elements_are_deleted_in_any_order(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = library("Emma", "Ulysses", "Dubliners");
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            library.getDisplayed().remove(book(manager, "Emma"));
            manager.deletePersistent(book(manager, "Ulysses"));
        });
        store.run(manager -> {
            assertNull(book(manager, "Emma").getWindow());
            assertEquals(Set.of("Dubliners"), titles(((Library) manager.getObjectById(id)).getDisplayed()));
            manager.deletePersistent(manager.getObjectById(id));
        });
        store.run(manager -> {
            Book dubliners = book(manager, "Dubliners");
            assertNull(dubliners.getWindow());
            assertNull(dubliners.getCatalogue());
            manager.deletePersistentAll(manager.newQuery(Book.class).executeList());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_list_that_is_not_loaded_gets_and_loses_elements(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object first = library("Emma");
        Object second = library("Ulysses");
        store.run(manager -> {
            book(manager, "Emma").setWindow((Library) manager.getObjectById(second, false));
            Book dubliners = new Book("Dubliners");
            dubliners.setWindow((Library) manager.getObjectById(second, false));
            manager.makePersistent(dubliners);
        });
        store.run(manager -> {
            assertEquals(List.of(), ((Library) manager.getObjectById(first)).getDisplayed());
            assertEquals(
                    Set.of("Dubliners", "Emma", "Ulysses"),
                    titles(((Library) manager.getObjectById(second)).getDisplayed()));
        });
    }

    @Test
    void elements_of_a_list_have_their_positions() {
        Object id = library();
        store.run(manager -> {
            Library library = (Library) manager.getObjectById(id);
            library.getRanked().addAll(List.of(new Book("Emma"), new Book("Ulysses"), new Book("Dubliners")));
        });
        store.run(manager -> ((Library) manager.getObjectById(id)).getRanked().remove(0));
        store.run(manager -> {
            List<Book> ranked = ((Library) manager.getObjectById(id)).getRanked();
            assertEquals(
                    List.of("Ulysses", "Dubliners"),
                    ranked.stream().map(Book::getTitle).toList());
            assertEquals(List.of(0, 1), ranked.stream().map(Book::getRank).toList());
        });
    }

    @Test
    void elements_with_other_positions_give_a_list_another_order() {
        Object id = store.call(manager -> {
            Library library = manager.makePersistent(new Library());
            library.getRanked().addAll(List.of(new Book("Emma"), new Book("Ulysses"), new Book("Dubliners")));
            return manager.getObjectId(library);
        });
        store.run(manager -> {
            List<Book> ranked = ((Library) manager.getObjectById(id)).getRanked();
            ranked.get(0).setRank(2);
            ranked.get(2).setRank(0);
        });
        store.run(manager -> {
            List<Book> ranked = ((Library) manager.getObjectById(id)).getRanked();
            assertEquals(
                    List.of("Dubliners", "Ulysses", "Emma"),
                    ranked.stream().map(Book::getTitle).toList());
            ranked.add(1, new Book("Persuasion"));
        });
        store.run(manager -> {
            List<Book> ranked = ((Library) manager.getObjectById(id)).getRanked();
            assertEquals(
                    List.of("Dubliners", "Persuasion", "Ulysses", "Emma"),
                    ranked.stream().map(Book::getTitle).toList());
            assertEquals(List.of(0, 1, 2, 3), ranked.stream().map(Book::getRank).toList());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void dependent_keys_and_values_are_deleted_with_their_owner(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = store.call(manager -> {
            Library library = new Library();
            library.getTranslations().put(new Book("Emma"), new Book("Emma (German)"));
            return manager.getObjectId(manager.makePersistent(library));
        });
        store.run(manager -> manager.deletePersistent(manager.getObjectById(id)));
        store.run(
                manager -> assertEquals(List.of(), manager.newQuery(Book.class).executeList()));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void dependent_keys_in_the_values_of_a_map_are_deleted_with_their_entries(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object id = store.call(manager -> {
            Library library = new Library();
            for (String title : List.of("Dubliners", "Emma", "Persuasion", "Ulysses")) {
                library.getReplacements().put(new Book(title), new Book(title + " (copy)"));
            }
            return manager.getObjectId(manager.makePersistent(library));
        });
        store.run(manager -> {
            Map<Book, Book> replacements = ((Library) manager.getObjectById(id)).getReplacements();
            replacements.remove(book(manager, "Emma"));
            // The copy of another book replaces that of this one, whose key is not in the map any more.
            Book ulysses = replacements.remove(book(manager, "Ulysses"));
            replacements.put(book(manager, "Persuasion"), ulysses);
        });
        store.run(manager -> {
            Map<Book, Book> replacements = ((Library) manager.getObjectById(id)).getReplacements();
            assertEquals(Set.of("Dubliners", "Persuasion"), titles(replacements.keySet()));
            assertEquals(Set.of("Dubliners (copy)", "Ulysses (copy)"), titles(replacements.values()));
            Set<String> left = titles(manager.newQuery(Book.class).executeList());
            assertEquals(
                    Set.of(
                            "Dubliners",
                            "Persuasion",
                            "Dubliners (copy)",
                            "Emma (copy)",
                            "Persuasion (copy)",
                            "Ulysses (copy)"),
                    left);
            assertNull(book(manager, "Emma (copy)").getOriginal());
            assertSame(
                    book(manager, "Persuasion"), book(manager, "Ulysses (copy)").getOriginal());
        });
    }

    @Test
    void an_owner_that_a_changed_element_makes_persistent_has_the_element() {
        Object first = library("Emma");
        store.run(manager -> {
            Book emma = book(manager, "Emma");
            Library second = new Library();
            second.getBooks().add(emma);
            emma.setWindow(second);
        });
        store.run(manager -> {
            Book emma = book(manager, "Emma");
            assertSame(emma.getWindow(), emma.getLibrary());
            assertEquals(Set.of("Emma"), titles(emma.getWindow().getBooks()));
            assertEquals(Set.of(), ((Library) manager.getObjectById(first)).getBooks());
        });
    }

    @Test
    void the_inverse_side_of_a_relation_of_one_to_one_is_stored_without_managed_relations() {
        restart(Map.of("datanucleus.manageRelationships", "false"));
        Object id = store.call(manager -> {
            Department sales = new Department("Sales");
            Employee ann = new Employee("Ann", 5);
            ann.setLeads(sales);
            sales.setLeader(ann);
            return manager.getObjectId(manager.makePersistent(sales));
        });
        store.run(manager -> ((Department) manager.getObjectById(id)).setLeader(new Employee("Bob", 4)));
        store.run(manager -> assertEquals(
                "Bob", ((Department) manager.getObjectById(id)).getLeader().getName()));
    }

    @Test
    void a_query_knows_whether_the_other_side_refers_to_an_object() {
        store.run(manager -> {
            Department sales = new Department("Sales");
            Employee ann = new Employee("Ann", 5);
            ann.setLeads(sales);
            manager.makePersistentAll(sales, ann, new Department("Idle"));
        });
        store.run(manager -> {
            Department led =
                    manager.newQuery(Department.class, "leader != null").executeUnique();
            assertEquals("Sales", led.getName());
            Department idle =
                    manager.newQuery(Department.class, "leader == null").executeUnique();
            assertEquals("Idle", idle.getName());
        });
    }

    @Test
    void a_former_partner_has_no_reference_in_the_same_transaction() {
        Object id = store.call(manager -> {
            Employee ann = new Employee("Ann", 5);
            Department sales = new Department("Sales");
            ann.setLeads(sales);
            manager.makePersistentAll(ann, sales, new Department("Idle"));
            return manager.getObjectId(ann);
        });
        store.run(manager -> {
            Department sales =
                    manager.newQuery(Department.class, "name == 'Sales'").executeUnique();
            Department idle =
                    manager.newQuery(Department.class, "name == 'Idle'").executeUnique();
            Employee ann = (Employee) manager.getObjectById(id);
            assertSame(ann, sales.getLeader());
            idle.setLeader(ann);
            manager.flush();
            assertSame(idle, ann.getLeads());
            assertNull(sales.getLeader());
        });
    }

    /** JDO 3.2, section 15.3: a flush refuses two sides that the application has made disagree. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void sides_that_disagree_are_refused(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", String.valueOf(isOptimistic)));
        Object id = store.call(manager -> {
            Employee ann = new Employee("Ann", 5);
            ann.setLeads(new Department("Idle"));
            manager.makePersistentAll(ann, new Department("Sales"));
            return manager.getObjectId(ann);
        });
        assertThrows(
                JDOUserException.class,
                () -> store.run(manager -> {
                    Department sales = manager.newQuery(Department.class, "name == 'Sales'")
                            .executeUnique();
                    Employee ann = (Employee) manager.getObjectById(id);
                    sales.setLeader(ann);
                    ann.setLeads(null);
                    manager.flush();
                }));
    }

    /** JDO 3.2, section 15.3: an element with one owner cannot be in the containers of two. */
    @ParameterizedTest
    @CsvSource({"false, false", "false, true", "true, false", "true, true"})
    void an_element_that_two_containers_get_is_refused(boolean isOptimistic, boolean isStored) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object first = library("Emma");
        Object second = library();
        Object third = library();
        JDOUserException error = assertThrows(
                JDOUserException.class,
                () -> store.run(manager -> {
                    Book book = isStored ? book(manager, "Emma") : manager.makePersistent(new Book("Ulysses"));
                    ((Library) manager.getObjectById(second)).getBooks().add(book);
                    ((Library) manager.getObjectById(third)).getBooks().add(book);
                    manager.flush();
                }));
        assertTrue(error.getMessage().contains("containers of two objects"), error.getMessage());
        store.run(manager -> {
            assertEquals(Set.of("Emma"), titles(((Library) manager.getObjectById(first)).getBooks()));
            assertEquals(Set.of(), titles(((Library) manager.getObjectById(second)).getBooks()));
            assertEquals(Set.of(), titles(((Library) manager.getObjectById(third)).getBooks()));
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_element_may_go_to_one_owner_after_the_other(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object first = library("Emma");
        Object second = library();
        Object third = library();
        for (int i = 0; i < 10; i++) {
            store.run(manager -> {
                Book emma = book(manager, "Emma");
                Set<Book> ofFirst = ((Library) manager.getObjectById(first)).getBooks();
                Set<Book> ofSecond = ((Library) manager.getObjectById(second)).getBooks();
                Set<Book> ofThird = ((Library) manager.getObjectById(third)).getBooks();
                ofSecond.add(emma);
                manager.flush();
                ofThird.add(emma);
                manager.flush();
                assertEquals(Set.of(), titles(ofSecond));
                ofSecond.add(emma);
                ofSecond.remove(emma);
                ofFirst.add(emma);
            });
            store.run(manager -> {
                Library library = (Library) manager.getObjectById(first);
                assertSame(library, book(manager, "Emma").getLibrary());
                assertEquals(Set.of("Emma"), titles(library.getBooks()));
            });
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_element_may_go_to_another_owner_in_the_next_transaction(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic, "javax.jdo.option.RetainValues", "true"));
        List<Object> ids = List.of(library("Emma"), library(), library());
        try (PersistenceManager manager = store.manager()) {
            for (int i = 1; i < 7; i++) {
                manager.currentTransaction().begin();
                Library owner = (Library) manager.getObjectById(ids.get(i % ids.size()));
                Book emma = book(manager, "Emma");
                owner.getBooks().add(emma);
                manager.currentTransaction().commit();
                assertSame(owner, emma.getLibrary());
            }
        }
    }

    /** JDO 3.2, section 15.3: the flush checks relations, not the deletion. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_flush_refuses_an_element_that_was_added_and_deleted(boolean isOptimistic) {
        restart(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        Object first = library("Emma");
        Object second = library();
        store.run(manager -> {
            Book emma = book(manager, "Emma");
            ((Library) manager.getObjectById(second)).getBooks().add(emma);
            manager.deletePersistent(emma);
            assertThrows(JDOUserException.class, manager::flush);
            manager.currentTransaction().rollback();
            manager.currentTransaction().begin();
        });
        store.run(manager -> {
            assertEquals(Set.of("Emma"), titles(((Library) manager.getObjectById(first)).getBooks()));
            assertEquals(Set.of(), titles(((Library) manager.getObjectById(second)).getBooks()));
        });
    }

    @Test
    void a_container_without_elements_is_null_in_a_filter() {
        store.run(manager -> {
            Department sales = new Department("Sales");
            sales.getEmployees().add(new Employee("Ann", 5));
            manager.makePersistentAll(sales, new Department("Idle"));
        });
        store.run(manager -> {
            Department idle =
                    manager.newQuery(Department.class, "employees == null").executeUnique();
            assertEquals("Idle", idle.getName());
            Department staffed =
                    manager.newQuery(Department.class, "this.employees != null").executeUnique();
            assertEquals("Sales", staffed.getName());
        });
    }
}
