package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Account;
import io.mortar.jdo.model.Animal;
import io.mortar.jdo.model.BoxSeat;
import io.mortar.jdo.model.Car;
import io.mortar.jdo.model.Dog;
import io.mortar.jdo.model.Fleet;
import io.mortar.jdo.model.KeyedNode;
import io.mortar.jdo.model.Node;
import io.mortar.jdo.model.Person;
import io.mortar.jdo.model.Place;
import io.mortar.jdo.model.Puppy;
import io.mortar.jdo.model.Seat;
import io.mortar.jdo.model.Ship;
import io.mortar.jdo.model.Truck;
import io.mortar.jdo.model.Vehicle;
import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import javax.jdo.JDODataStoreException;
import javax.jdo.JDOException;
import javax.jdo.JDOObjectNotFoundException;
import javax.jdo.JDOUserException;
import javax.jdo.PersistenceManager;
import javax.jdo.Transaction;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** JDO 3.2, chapters 5 and 12: identities, uniqueness and inheritance. */
class IdentityTest {
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    @Test
    void one_object_has_one_instance_in_a_persistence_manager() {
        Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 1))));
        store.run(manager -> {
            assertSame(manager.getObjectById(id), manager.getObjectById(id));
            assertSame(
                    manager.getObjectById(id),
                    manager.newQuery(Person.class).executeList().get(0));
        });
    }

    @Test
    void an_identity_can_be_a_text() {
        String text = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 1)))
                .toString());
        store.run(manager -> assertEquals(
                "Ann", ((Person) manager.getObjectById(manager.newObjectIdInstance(Person.class, text))).getName()));
    }

    @Test
    void an_identity_of_another_class_or_space_is_that_of_no_object() {
        String node = store.call(manager ->
                manager.getObjectId(manager.makePersistent(new Node(1, null))).toString());
        String key = node.substring(0, node.indexOf('['));
        store.run(manager -> {
            assertEquals(1, manager.getObjectById(Node.class, key).getNumber());
            for (String other : List.of(key, "0.0.0.0.0", "7fff.1.1.1.1")) {
                assertThrows(
                        JDOObjectNotFoundException.class,
                        () -> manager.getObjectById(Person.class, other).getName());
            }
        });
    }

    @Test
    void an_identity_of_two_members_is_looked_up() {
        store.run(manager -> {
            manager.makePersistent(new Seat("North", 1));
            manager.makePersistent(new Seat("North", 2));
        });
        store.run(manager -> ((Seat) manager.getObjectById(new Seat.Id("North:2"))).setTaker("Ann"));
        store.run(manager -> {
            assertEquals("Ann", ((Seat) manager.getObjectById(new Seat.Id("North:2"))).getTaker());
            assertThrows(JDOObjectNotFoundException.class, () -> manager.getObjectById(new Seat.Id("South:2")));
        });
    }

    @Test
    void a_missing_object_is_not_found() {
        Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 1))));
        store.run(manager -> manager.deletePersistent(manager.getObjectById(id)));
        try (PersistenceManager manager = store.manager()) {
            assertThrows(JDOObjectNotFoundException.class, () -> manager.getObjectById(id));
            assertThrows(JDOObjectNotFoundException.class, () -> manager.getObjectById(Account.class, 1L));
        }
    }

    @Test
    void an_identity_that_was_deleted_can_be_used_again() {
        store.run(manager -> manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
        store.run(manager -> manager.deletePersistent(manager.getObjectById(Account.class, 1L)));
        store.run(manager -> manager.makePersistent(new Account(1, "B", BigDecimal.TEN, null)));
        store.run(manager ->
                assertEquals("B", manager.getObjectById(Account.class, 1L).getIban()));
    }

    @Test
    void values_of_a_unique_member_and_of_an_identity_are_unique() {
        store.run(manager -> manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
        assertThrows(
                JDOException.class,
                () -> store.run(manager -> manager.makePersistent(new Account(1, "B", BigDecimal.ONE, null))));
        JDODataStoreException error = assertThrows(
                JDODataStoreException.class,
                () -> store.run(manager -> manager.makePersistent(new Account(2, "A", BigDecimal.ONE, null))));
        assertTrue(
                error.toString().contains("unique")
                        || String.valueOf(error.getCause()).contains("unique"),
                error::toString);
    }

    @Test
    void an_object_of_a_subclass_is_found_as_one_of_its_superclass() {
        long id = store.call(manager -> {
            Dog rex = new Dog("Rex", 3);
            Puppy pip = new Puppy("Pip", "Pippi");
            manager.makePersistentAll(rex, pip);
            assertNotEquals(rex.getId(), pip.getId());
            return pip.getId();
        });
        store.run(manager -> {
            Puppy pip = assertInstanceOf(Puppy.class, manager.getObjectById(Animal.class, id));
            assertEquals("Pip", pip.getName());
            assertEquals("Pippi", pip.getNickname());
            assertEquals(
                    2,
                    manager.newQuery(Animal.class, "name != null").executeList().size());
            var only = manager.newQuery(Dog.class);
            only.setCandidates(manager.getExtent(Dog.class, false));
            assertEquals(1, only.executeList().size());
            int all = 0;
            for (Animal animal : manager.getExtent(Animal.class, true)) {
                all += animal.getName().length();
            }
            assertEquals(6, all);
            assertEquals(
                    List.of("Rex"),
                    manager.newQuery("select name from io.mortar.jdo.model.Dog where tricks > 1")
                            .execute());
        });
    }

    @Test
    void an_object_has_its_class_though_its_identity_does_not_say_it() {
        store.run(manager -> manager.makePersistentAll(new Seat("North", 1), new BoxSeat("North", 2, 4)));
        store.run(manager -> {
            assertEquals(
                    Seat.class, manager.getObjectById(new Seat.Id("North:1")).getClass());
            assertEquals(
                    4,
                    assertInstanceOf(BoxSeat.class, manager.getObjectById(new Seat.Id("North:2"), false))
                            .getGuests());
        });
    }

    @Test
    void classes_below_one_without_objects_have_identities_of_their_own() {
        store.run(manager -> manager.makePersistentAll(new Car(1), new Truck(1)));
        store.run(manager -> {
            assertEquals(1, manager.getObjectById(Car.class, 1).getPlate());
            assertEquals(1, manager.getObjectById(Truck.class, 1).getPlate());
            assertEquals(
                    2,
                    manager.newQuery(Vehicle.class, "plate == 1").executeList().size());
        });
        assertThrows(JDOException.class, () -> store.run(manager -> manager.makePersistent(new Car(1))));
        assertThrows(JDOUserException.class, () -> store.run(manager -> manager.makePersistent(new Vehicle(2))));
    }

    @Test
    void an_object_of_a_persistent_interface_is_stored() {
        Object id = store.call(manager -> {
            Place place = manager.newInstance(Place.class);
            place.setName("Rome");
            return manager.getObjectId(manager.makePersistent(place));
        });
        store.run(manager -> {
            assertEquals("Rome", ((Place) manager.getObjectById(id)).getName());
            assertEquals(
                    "Rome",
                    manager.newQuery(Place.class, "name == 'Rome'")
                            .executeUnique()
                            .getName());
        });
    }

    @Test
    void two_new_objects_of_a_transaction_cannot_have_the_same_identity() {
        store.run(manager -> {
            manager.makePersistentAll(new KeyedNode(1, null), new KeyedNode(2, null));
            manager.flush();
            manager.makePersistent(new KeyedNode(2, null));
            JDODataStoreException error = assertThrows(JDODataStoreException.class, manager::flush);
            assertTrue(error.getMessage().contains("exists already"), error.getMessage());
            manager.currentTransaction().rollback();
            manager.currentTransaction().begin();
        });
        store.run(manager -> {
            manager.deletePersistent(manager.makePersistent(new KeyedNode(2, null)));
            manager.flush();
            manager.makePersistent(new KeyedNode(2, null));
        });
        store.run(manager ->
                assertEquals(1, manager.newQuery(KeyedNode.class).executeList().size()));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_element_whose_identity_contains_its_owner_keeps_it_when_the_owner_is_attached_again(boolean isOptimistic) {
        try (Store store = Store.with(Map.of("javax.jdo.option.Optimistic", isOptimistic));
                PersistenceManager manager = store.manager()) {
            Transaction transaction = manager.currentTransaction();
            transaction.begin();
            Fleet north = new Fleet("north");
            north.getShips().add(new Ship(north, 1, "red"));
            manager.makePersistent(north);
            transaction.commit();
            Object id = manager.getObjectId(north);
            transaction.begin();
            Fleet detached = manager.detachCopy((Fleet) manager.getObjectById(id));
            transaction.commit();
            for (int number = 2; number <= 3; number++) {
                detached.getShips().add(new Ship(north, number, "blue"));
                transaction.begin();
                manager.makePersistent(detached);
                transaction.commit();
            }
            transaction.begin();
            List<Ship> ships = ((Fleet) manager.getObjectById(id)).getShips();
            assertEquals(Set.of(1, 2, 3), ships.stream().map(Ship::getNumber).collect(Collectors.toSet()));
            ships.forEach(ship -> assertSame(north, ship.getFleet()));
            transaction.commit();
        }
    }

    @ParameterizedTest
    @CsvSource({"true, true", "true, false", "false, true", "false, false"})
    void an_object_can_be_deleted_and_stored_anew_with_its_identity(boolean isOptimistic, boolean isStored) {
        try (Store store = Store.with(Map.of("javax.jdo.option.Optimistic", isOptimistic))) {
            for (boolean flushes : new boolean[] {true, false}) {
                if (isStored) {
                    store.run(manager -> manager.makePersistent(new KeyedNode(1, null)));
                }
                store.run(manager -> {
                    KeyedNode first = isStored
                            ? manager.getObjectById(KeyedNode.class, 1)
                            : manager.makePersistent(new KeyedNode(1, null));
                    if (flushes) {
                        manager.flush();
                    }
                    manager.deletePersistent(first);
                    if (flushes) {
                        manager.flush();
                    }
                    manager.makePersistent(new KeyedNode(1, new KeyedNode(2, null)));
                });
                store.run(manager -> {
                    KeyedNode node = manager.getObjectById(KeyedNode.class, 1);
                    assertEquals(2, node.getNext().getNumber());
                    manager.deletePersistentAll(node, node.getNext());
                });
            }
        }
    }
}
