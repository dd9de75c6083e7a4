package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Guest;
import io.mortar.jdo.entities.Machine;
import io.mortar.jdo.entities.Part;
import io.mortar.jdo.entities.Room;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Jakarta Persistence 3.1, sections 3.2.3 to 3.2.6: which entities an operation cascades to, and when. */
class RemovalTest extends EntityTest {
    private void storeMachine(Machine.Container container) {
        run(manager -> {
            Machine machine = new Machine("press");
            machine.get(container).add(new Part("wheel"));
            machine.setSpare(new Part("belt"));
            manager.persist(machine);
        });
    }

    @ParameterizedTest
    @EnumSource(Machine.Container.class)
    void a_removal_is_visible_at_once_in_the_entities_that_it_cascades_to(Machine.Container container) {
        storeMachine(container);
        run(manager -> {
            Machine machine = manager.find(Machine.class, "press");
            Part wheel = machine.get(container).iterator().next();
            Part belt = machine.getSpare();
            manager.remove(machine);
            assertFalse(manager.contains(machine));
            assertFalse(manager.contains(wheel));
            assertFalse(manager.contains(belt));
        });
        run(manager -> assertEquals(
                0L,
                manager.createQuery("SELECT COUNT(p) FROM Part p", Long.class).getSingleResult()));
    }

    @Test
    void a_removal_that_is_rolled_back_removes_nothing() {
        storeMachine(Machine.Container.OWNED);
        assertThrows(
                IllegalArgumentException.class,
                () -> run(manager -> {
                    manager.remove(manager.find(Machine.class, "press"));
                    throw new IllegalArgumentException("roll back");
                }));
        run(manager -> {
            Machine machine = manager.find(Machine.class, "press");
            assertEquals(1, machine.get(Machine.Container.OWNED).size());
            assertTrue(manager.contains(machine.getSpare()));
        });
    }

    @Test
    void a_new_entity_in_the_inverse_side_of_a_relation_that_does_not_cascade_is_refused() {
        run(manager -> manager.persist(new Guest("Ann")));
        assertThrows(
                IllegalStateException.class,
                () -> run(manager -> {
                    Guest guest = new Guest("Bob");
                    guest.getRooms().add(new Room("North", 7));
                    manager.persist(guest);
                    manager.flush();
                }));
    }
}
