package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Address;
import io.mortar.jdo.model.Circle;
import io.mortar.jdo.model.Coin;
import io.mortar.jdo.model.Department;
import io.mortar.jdo.model.Drawing;
import io.mortar.jdo.model.Employee;
import io.mortar.jdo.model.Mosaic;
import io.mortar.jdo.model.Project;
import io.mortar.jdo.model.Shape;
import io.mortar.jdo.model.Square;
import io.mortar.jdo.model.Tile;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import javax.jdo.JDOException;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** JDO 3.2, chapters 6 and 15: references, collections and relations. */
class RelationsTest {
    private Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private static Set<String> names(Collection<Employee> employees) {
        Set<String> names = new TreeSet<>();
        employees.forEach(each -> names.add(each.getName()));
        return names;
    }

    @Test
    void the_owner_finds_the_elements_that_refer_to_it() {
        Object id = store.call(manager -> {
            Department sales = new Department("Sales");
            sales.getEmployees().add(new Employee("Ann", 5));
            manager.makePersistent(sales);
            return manager.getObjectId(sales);
        });
        store.run(manager -> {
            Department sales = (Department) manager.getObjectById(id);
            Employee bob = new Employee("Bob", 4);
            bob.setDepartment(sales);
            manager.makePersistent(bob);
        });
        store.run(manager -> {
            Department sales = (Department) manager.getObjectById(id);
            assertEquals(Set.of("Ann", "Bob"), names(sales.getEmployees()));
            sales.getEmployees().forEach(each -> assertSame(sales, each.getDepartment()));
        });
        store.run(manager -> {
            Department sales = (Department) manager.getObjectById(id);
            sales.getEmployees().removeIf(each -> each.getName().equals("Ann"));
        });
        store.run(manager -> {
            assertEquals(Set.of("Bob"), names(((Department) manager.getObjectById(id)).getEmployees()));
            assertEquals(1, manager.newQuery(Employee.class).executeList().size());
            manager.deletePersistent(manager.getObjectById(id));
        });
        store.run(manager ->
                assertEquals(0, manager.newQuery(Employee.class).executeList().size()));
    }

    @Test
    void dependent_elements_are_deleted_when_their_set_is_cleared_in_a_datastore_transaction() {
        store.close();
        store = Store.with(Map.of("javax.jdo.option.Optimistic", false));
        Object id = store.call(manager -> {
            Department sales = new Department("Sales");
            sales.getEmployees().addAll(List.of(new Employee("Ann", 5), new Employee("Bob", 4)));
            return manager.getObjectId(manager.makePersistent(sales));
        });
        store.run(manager -> {
            Department sales = (Department) manager.getObjectById(id);
            assertEquals(Set.of("Ann", "Bob"), names(sales.getEmployees()));
            sales.getEmployees().clear();
        });
        store.run(manager ->
                assertEquals(0, manager.newQuery(Employee.class).executeList().size()));
    }

    @Test
    void lists_maps_and_arrays_of_references_return_in_order() {
        Object id = store.call(manager -> {
            Employee ann = new Employee("Ann", 5);
            Employee bob = new Employee("Bob", 4);
            Department sales = new Department("Sales");
            sales.getRanking().addAll(List.of(bob, ann, bob));
            sales.getByRole().put("boss", ann);
            sales.getDesks().put(bob, "window");
            sales.setBoard(ann, null, bob);
            sales.setLeader(ann);
            manager.makePersistent(sales);
            return manager.getObjectId(sales);
        });
        store.run(manager -> {
            Department sales = (Department) manager.getObjectById(id);
            assertEquals(
                    List.of("Bob", "Ann", "Bob"),
                    sales.getRanking().stream().map(Employee::getName).toList());
            assertEquals("Ann", sales.getByRole().get("boss").getName());
            assertEquals("window", sales.getDesks().get(sales.getRanking().get(0)));
            assertEquals("Ann", sales.getBoard()[0].getName());
            assertSame(sales, sales.getLeader().getLeads());
            sales.getRanking().remove(0);
            sales.getRanking().add(new Employee("Cid", 3));
            sales.getByRole().remove("boss");
        });
        store.run(manager -> {
            Department sales = (Department) manager.getObjectById(id);
            assertEquals(
                    List.of("Ann", "Bob", "Cid"),
                    sales.getRanking().stream().map(Employee::getName).toList());
            assertNull(sales.getByRole().get("boss"));
        });
    }

    @Test
    void both_sides_of_a_relation_of_many_to_many_are_kept() {
        Object id = store.call(manager -> {
            Employee ann = new Employee("Ann", 5);
            ann.getProjects().add(new Project("Dam"));
            manager.makePersistent(ann);
            return manager.getObjectId(ann.getProjects().iterator().next());
        });
        store.run(manager -> assertEquals(Set.of("Ann"), names(((Project) manager.getObjectById(id)).getMembers())));
    }

    @Test
    void many_objects_of_a_relation_of_many_to_many_are_deleted_together() {
        try (Store other = Store.inMemory()) {
            other.run(manager -> {
                for (int i = 0; i < 6; i++) {
                    manager.makePersistent(new Project("P" + i));
                    manager.makePersistent(new Employee("E" + i, i));
                }
            });
            other.run(manager -> {
                List<Project> projects = manager.newQuery(Project.class).executeList();
                manager.newQuery(Employee.class)
                        .executeList()
                        .forEach(each -> each.getProjects().addAll(projects));
            });
            other.run(manager -> {
                List<Project> ended =
                        manager.newQuery(Project.class, "name != 'P0'").executeList();
                ended.forEach(each -> assertEquals(6, each.getMembers().size()));
                manager.deletePersistentAll(ended);
                // The query flushes.
                List<Employee> employees = manager.newQuery(Employee.class).executeList();
                employees.forEach(each -> assertEquals(
                        List.of("P0"),
                        each.getProjects().stream().map(Project::getName).toList()));
                manager.deletePersistentAll(employees);
            });
            other.run(manager -> {
                assertEquals(0, manager.newQuery(Employee.class).executeList().size());
                assertEquals(1, manager.newQuery(Project.class).executeList().size());
            });
        }
    }

    @Test
    void a_reference_may_be_of_an_interface_or_of_any_object() {
        Object id = store.call(manager -> {
            Drawing drawing = new Drawing();
            drawing.setMain(new Circle(1));
            drawing.getShapes().add(new Square(2));
            drawing.getShapes().add(new Circle(1));
            drawing.setAnything(new Square(3));
            manager.makePersistent(drawing);
            return manager.getObjectId(drawing);
        });
        store.run(manager -> {
            Drawing drawing = (Drawing) manager.getObjectById(id);
            assertEquals(Math.PI, drawing.getMain().area());
            assertEquals(4.0, drawing.getShapes().get(0).area());
            assertEquals(9.0, ((Square) drawing.getAnything()).area());
        });
    }

    @Test
    void a_class_that_only_the_metadata_of_an_array_names_is_stored() {
        Object id = store.call(
                manager -> manager.getObjectId(manager.makePersistent(new Mosaic(new Tile(2), new Tile(3)))));
        store.run(manager -> {
            Shape[] tiles = ((Mosaic) manager.getObjectById(id)).getTiles();
            assertEquals(List.of(4.0, 9.0), Stream.of(tiles).map(Shape::area).toList());
        });
    }

    @Test
    void a_set_does_not_have_deleted_objects() {
        for (boolean isOneTransaction : List.of(true, false)) {
            store.run(manager -> {
                Coin purse = new Coin("purse");
                purse.getLikes().addAll(List.of(new Coin("euro"), new Coin("yen")));
                manager.makePersistent(purse);
            });
            store.run(manager -> {
                manager.deletePersistentAll(
                        manager.newQuery(Coin.class, "currency == 'yen'").executeList());
                if (isOneTransaction) {
                    assertEquals(Set.of(new Coin("euro")), purse(manager).getLikes());
                }
            });
            store.run(manager -> {
                assertEquals(Set.of(new Coin("euro")), purse(manager).getLikes());
                manager.deletePersistentAll(
                        manager.newQuery(Coin.class, "currency == 'euro'").executeList());
                manager.deletePersistent(purse(manager));
            });
            store.run(manager ->
                    assertEquals(List.of(), manager.newQuery(Coin.class).executeList()));
        }
    }

    private static Coin purse(PersistenceManager manager) {
        return manager.newQuery(Coin.class, "currency == 'purse'").executeUnique();
    }

    @Test
    void a_query_compares_objects_by_their_identities() {
        store.run(manager -> manager.makePersistentAll(new Coin("euro"), new Coin("euro")));
        store.run(manager -> {
            // The second condition is evaluated in memory.
            var query = manager.newQuery(Coin.class, "this == :coin && currency.substring(0) == 'euro'");
            Coin first = manager.newQuery(Coin.class).executeList().get(0);
            assertEquals(1, ((List<?>) query.execute(first)).size());
            assertEquals(0, ((List<?>) query.execute(new Coin("euro"))).size());
        });
    }

    @Test
    void a_container_of_embedded_objects_cannot_contain_null() {
        JDOException error = assertThrows(
                JDOException.class,
                () -> store.run(manager -> {
                    Drawing drawing = new Drawing();
                    drawing.getPlaces().add(null);
                    manager.makePersistent(drawing);
                }));
        assertTrue(error.toString().contains("places"), error.toString());
    }

    @Test
    void containers_hold_embedded_objects() {
        Object id = store.call(manager -> {
            Drawing drawing = new Drawing();
            drawing.getPlaces().add(new Address("Main", 1, "Ulm"));
            drawing.getPlaces().add(new Address("Side", 2, null));
            drawing.getPlacesByName().put("home", new Address("Main", 3, "Bonn"));
            drawing.getSquares().put(new Address("Side", 4, "Ulm"), null);
            manager.makePersistent(drawing);
            return manager.getObjectId(drawing);
        });
        store.run(manager -> {
            Drawing drawing = (Drawing) manager.getObjectById(id);
            assertEquals(2, drawing.getPlaces().size());
            assertEquals("Ulm", drawing.getPlaces().get(0).getCity());
            assertNull(drawing.getPlaces().get(1).getCity());
            assertEquals(3, drawing.getPlacesByName().get("home").getNumber());
            Map.Entry<Address, Square> square =
                    drawing.getSquares().entrySet().iterator().next();
            assertEquals(4, square.getKey().getNumber());
            assertNull(square.getValue());
            drawing.getPlaces().remove(0);
        });
        store.run(manager -> assertEquals(
                2, ((Drawing) manager.getObjectById(id)).getPlaces().get(0).getNumber()));
    }

    @Test
    void objects_that_no_longer_exist_are_left_out_of_a_sorted_list() {
        Object id = store.call(manager -> {
            Drawing drawing = new Drawing();
            drawing.getSorted().addAll(List.of(new Square(3), new Square(1), new Square(2)));
            return manager.getObjectId(manager.makePersistent(drawing));
        });
        store.run(manager -> manager.newQuery(Square.class, "side == 2.0").deletePersistentAll());
        store.run(manager -> {
            List<Square> sorted = ((Drawing) manager.getObjectById(id)).getSorted();
            assertEquals(List.of(1.0, 9.0), sorted.stream().map(Square::area).toList());
        });
    }

    @Test
    void an_object_of_a_class_that_the_metadata_does_not_permit_is_refused() {
        Drawing drawing = new Drawing();
        drawing.setMain(new Circle(1));
        drawing.setAnything(new Tile(1));
        ClassCastException error =
                assertThrows(ClassCastException.class, () -> store.run(manager -> manager.makePersistent(drawing)));
        assertTrue(error.getMessage().contains("anything cannot refer to"), error.getMessage());
        assertTrue(error.getMessage().contains(Square.class.getName()), error.getMessage());
        store.run(manager -> {
            assertEquals(List.of(), manager.newQuery(Drawing.class).executeList());
            assertEquals(List.of(), manager.newQuery(Tile.class).executeList());
        });
    }

    @Test
    void a_deleted_object_leaves_the_containers_of_others_that_were_not_read() {
        for (boolean isOptimistic : new boolean[] {true, false}) {
            try (Store other = Store.with(Map.of("javax.jdo.option.Optimistic", isOptimistic))) {
                other.run(manager -> {
                    List<Project> projects = List.of(new Project("P0"), new Project("P1"), new Project("P2"));
                    for (Employee each : List.of(new Employee("Ann", 5), new Employee("Bob", 4))) {
                        each.getProjects().addAll(projects);
                        manager.makePersistent(each);
                    }
                });
                other.run(manager -> manager.deletePersistent(
                        manager.newQuery(Project.class, "name == 'P2'").executeUnique()));
                other.run(manager -> {
                    for (Employee each : manager.newQuery(Employee.class).executeList()) {
                        assertEquals(2, each.getProjects().size());
                    }
                    manager.newQuery(Project.class, "name == 'P1'").deletePersistentAll();
                });
                other.run(manager -> {
                    for (Employee each : manager.newQuery(Employee.class).executeList()) {
                        assertEquals(
                                List.of("P0"),
                                each.getProjects().stream()
                                        .map(Project::getName)
                                        .toList());
                    }
                });
            }
        }
    }
}
