package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.Client;
import io.mortar.Rows;
import io.mortar.jdo.model.Address;
import io.mortar.jdo.model.Node;
import io.mortar.jdo.model.Person;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import javax.jdo.Extent;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** JDO 3.2, chapter 15: extents; and what other clients see. */
class ExtentTest {
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    @Test
    void an_extent_has_all_objects_of_its_class() {
        store.run(manager -> {
            for (int i = 0; i < 5_000; i++) {
                manager.makePersistent(new Node(i, null));
            }
        });
        store.run(manager -> {
            manager.makePersistent(new Node(5_000, null));
            long sum = 0;
            Extent<Node> extent = manager.getExtent(Node.class, true);
            for (Node node : extent) {
                sum += node.getNumber();
            }
            extent.closeAll();
            assertEquals(5_000L * 5_001 / 2, sum);
        });
    }

    @Test
    void a_closed_iterator_has_no_next_object() {
        store.run(manager -> {
            manager.makePersistent(new Node(1, null));
            Extent<Node> extent = manager.getExtent(Node.class, true);
            Iterator<Node> iterator = extent.iterator();
            extent.closeAll();
            assertFalse(iterator.hasNext());
            assertThrows(NoSuchElementException.class, iterator::next);
        });
    }

    @Test
    void one_iterator_is_closed_without_the_others() {
        store.run(manager -> {
            manager.makePersistent(new Node(1, null));
            Extent<Node> extent = manager.getExtent(Node.class, true);
            Iterator<Node> first = extent.iterator();
            Iterator<Node> second = extent.iterator();
            extent.close(first);
            assertFalse(first.hasNext());
            assertTrue(second.hasNext());
            extent.closeAll();
            assertFalse(second.hasNext());
        });
    }

    @Test
    void an_extent_does_not_keep_an_iterator_that_the_program_has_forgotten() {
        store.run(manager -> {
            manager.makePersistent(new Node(1, null));
            Extent<Node> extent = manager.getExtent(Node.class, true);
            Reference<Iterator<Node>> forgotten = new WeakReference<>(extent.iterator());
            for (int i = 0; i < 100 && !forgotten.refersTo(null); i++) {
                System.gc();
            }
            assertTrue(forgotten.refersTo(null));
            extent.closeAll();
        });
    }

    @Test
    void other_clients_see_the_classes_and_their_members() {
        store.run(manager -> {
            Person ann = new Person("Ann", 50);
            ann.setAddress(new Address("Main", 3, "Ulm"));
            Person bob = new Person("Bob", 30);
            bob.setBoss(ann);
            manager.makePersistent(bob);
        });
        store.run(manager -> {
            Client client = store.client();
            try (Rows rows = client.query("select name, boss.address_city from Person where boss.age > 40")) {
                assertEquals(List.of("Bob", "Ulm"), rows.next().values());
            }
            assertEquals(
                    "io.mortar.jdo.model.Person",
                    client.schema()
                            .classNamed("io.mortar.jdo.model.Person")
                            .get()
                            .name());
        });
    }
}
