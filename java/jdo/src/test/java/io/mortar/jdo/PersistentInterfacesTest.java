package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.mortar.jdo.model.Basket;
import io.mortar.jdo.model.Bounds;
import io.mortar.jdo.model.Place;
import io.mortar.jdo.model.Region;
import java.util.List;
import java.util.Set;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/**
 * JDO 3.2, section 6.6: interfaces whose implementations are generated; and properties, which have setters as they do.
 */
class PersistentInterfacesTest {
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private static Region region(PersistenceManager manager, String name) {
        Region region = manager.newInstance(Region.class);
        region.setNames(List.of(name));
        return region;
    }

    @Test
    void an_interface_can_be_embedded_in_another_one() {
        Object id = store.call(manager -> {
            Region region = region(manager, "Alps");
            Bounds bounds = manager.newInstance(Bounds.class);
            bounds.setWest(5);
            bounds.setEast(16);
            region.setBounds(bounds);
            manager.makePersistent(region);
            manager.makePersistent(region(manager, "Sea"));
            return manager.getObjectId(region);
        });
        store.run(manager -> ((Region) manager.getObjectById(id)).getBounds().setEast(17));
        store.run(manager -> {
            Region alps = (Region) manager.getObjectById(id);
            assertEquals(17, alps.getBounds().getEast());
            assertSame(alps, manager.newQuery(Region.class, "bounds.west == 5").executeUnique());
            assertNull(manager.newQuery(Region.class, "names.contains('Sea')")
                    .executeUnique()
                    .getBounds());
        });
    }

    @Test
    void interfaces_are_elements_of_others() {
        Object id = store.call(manager -> {
            Place rome = manager.newInstance(Place.class);
            rome.setName("Rome");
            Region italy = region(manager, "Italy");
            italy.setPlaces(Set.of(rome));
            Region latium = region(manager, "Latium");
            latium.setParent(italy);
            italy.setParts(Set.of(latium));
            return manager.getObjectId(manager.makePersistent(italy));
        });
        store.run(manager -> {
            Region italy = (Region) manager.getObjectById(id);
            assertEquals("Rome", italy.getPlaces().iterator().next().getName());
            Region latium = italy.getParts().iterator().next();
            assertSame(italy, latium.getParent());
            assertEquals(Set.of(), latium.getPlaces(), "no constructor gives it a set");
            latium.setParent(null);
        });
        store.run(manager -> assertEquals(Set.of(), ((Region) manager.getObjectById(id)).getParts()));
    }

    @Test
    void the_setter_of_a_property_may_copy_its_value() {
        Object id = store.call(manager -> {
            Basket basket = new Basket();
            basket.setContents(Set.of("bread"));
            return manager.getObjectId(manager.makePersistent(basket));
        });
        store.run(manager -> {
            Basket basket = (Basket) manager.getObjectById(id);
            assertEquals(Set.of("bread"), basket.getContents());
            basket.setContents(Set.of("bread", "salt"));
        });
        store.run(manager -> assertEquals(Set.of("bread", "salt"), ((Basket) manager.getObjectById(id)).getContents()));
    }
}
