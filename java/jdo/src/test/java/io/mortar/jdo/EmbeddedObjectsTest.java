package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.Client;
import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.jdo.model.Anchor;
import io.mortar.jdo.model.Boat;
import io.mortar.jdo.model.Motor;
import io.mortar.jdo.model.Outboard;
import io.mortar.jdo.model.Spinnaker;
import java.util.List;
import java.util.Map;
import javax.jdo.JDOUserException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** JDO 3.2, chapter 18: embedded objects, their owners and their classes. */
class EmbeddedObjectsTest {
    private final Store store = Store.with(Map.of(
            "datanucleus.autoStartMechanism",
            "Classes",
            "datanucleus.autoStartClassNames",
            String.join(",", Boat.class.getName(), Outboard.class.getName())));

    @AfterEach
    void close() {
        store.close();
    }

    private Object persist(Boat boat) {
        return store.call(manager -> manager.getObjectId(manager.makePersistent(boat)));
    }

    @Test
    void an_embedded_object_refers_to_its_owner() {
        Boat boat = new Boat();
        boat.setMotor(new Motor(5));
        Object id = persist(boat);
        store.run(manager -> {
            Boat found = (Boat) manager.getObjectById(id);
            assertSame(found, found.getMotor().getBoat());
            assertNotNull(manager.newQuery(Boat.class, "motor.power == 5")
                    .executeList()
                    .get(0));
        });
    }

    @Test
    void an_embedded_object_keeps_its_class() {
        Boat boat = new Boat();
        boat.setMotor(new Outboard(7, "x", 30));
        boat.getSpares().addAll(List.of(new Outboard(2, "y", 9), new Motor(3)));
        Object id = persist(boat);
        store.run(manager -> {
            Boat found = (Boat) manager.getObjectById(id);
            Outboard outboard = assertInstanceOf(Outboard.class, found.getMotor());
            assertEquals(7, outboard.getPower());
            assertEquals("x", outboard.getMake());
            assertEquals(30, outboard.getWeight());
            assertEquals("y", ((Outboard) found.getSpares().get(0)).getMake());
            assertEquals(Motor.class, found.getSpares().get(1).getClass());
            found.setMotor(new Motor(8));
        });
        store.run(manager -> {
            Boat found = (Boat) manager.getObjectById(id);
            assertEquals(Motor.class, found.getMotor().getClass());
            found.setMotor(new Outboard(9, null, 0));
        });
        store.run(manager -> assertEquals(0, ((Outboard) ((Boat) manager.getObjectById(id)).getMotor()).getWeight()));
    }

    @Test
    void elements_that_were_stored_before_their_class_had_a_member_have_its_default() {
        Boat boat = new Boat();
        boat.getSpares().addAll(List.of(new Motor(3), new Motor(4)));
        Object id = persist(boat);
        Client client = store.client();
        client.run(transaction -> {
            String name = Boat.class.getName();
            Oid oid = transaction.query("from `" + name + '`', Map.of()).next().oid();
            Record.Builder older = transaction.get(oid).orElseThrow().record().toBuilder();
            client.schema().fieldsOf(name).keySet().stream()
                    .filter(field -> field.startsWith("spares_"))
                    .forEach(field -> older.set(client.schema().fieldNumber(name, field), null));
            transaction.put(oid, older.build());
        });
        store.run(manager -> {
            Boat found = (Boat) manager.getObjectById(id);
            assertEquals(
                    List.of(0, 0),
                    found.getSpares().stream().map(Motor::getPower).toList());
            found.getSpares().add(new Outboard(5, "x", 6));
        });
        store.run(manager -> {
            Boat found = (Boat) manager.getObjectById(id);
            assertEquals(Motor.class, found.getSpares().get(1).getClass());
            assertEquals("x", ((Outboard) found.getSpares().get(2)).getMake());
        });
    }

    @Test
    void an_embedded_object_of_a_subclass_is_refused_without_a_discriminator() {
        Boat boat = new Boat();
        boat.setSail(new Spinnaker());
        assertTrue(assertThrows(JDOUserException.class, () -> persist(boat))
                .getMessage()
                .contains("discriminator"));
    }

    @Test
    void a_change_of_a_serialized_object_is_stored_with_its_owner() {
        Object id = store.call(manager -> {
            Boat boat = new Boat();
            boat.setAnchor(new Anchor(1));
            manager.makePersistent(boat);
            manager.flush();
            boat.getAnchor().setWeight(2);
            return manager.getObjectId(boat);
        });
        store.run(manager -> {
            Anchor anchor = ((Boat) manager.getObjectById(id)).getAnchor();
            assertEquals(2, anchor.getWeight());
            anchor.setWeight(3);
        });
        store.run(manager -> {
            Boat boat = (Boat) manager.getObjectById(id);
            assertEquals(3, boat.getAnchor().getWeight());
            assertEquals(
                    List.of(), manager.newQuery(Boat.class, "anchor == null").executeList());
            boat.setAnchor(null);
        });
        store.run(manager -> assertNull(((Boat) manager.getObjectById(id)).getAnchor()));
    }
}
