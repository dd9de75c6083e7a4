package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.mortar.jdo.model.KeyedNode;
import io.mortar.jdo.model.Node;
import java.util.List;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Chains of objects that a recursive walk could not follow on the stack of a thread. */
class ChainTest {
    private static final int LENGTH = 100_000;

    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private static Node chain(int length) {
        Node first = null;
        for (int number = length; number > 0; number--) {
            first = new Node(number, first);
        }
        return first;
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_long_chain_becomes_persistent_with_its_first_object(boolean optimistic) {
        Object id;
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().setOptimistic(optimistic);
            manager.currentTransaction().begin();
            Node first = manager.makePersistent(chain(LENGTH));
            id = manager.getObjectId(first);
            manager.currentTransaction().commit();
        }
        store.run(manager -> {
            int length = 0;
            for (Node node = (Node) manager.getObjectById(id); node != null; node = node.getNext()) {
                assertEquals(++length, node.getNumber());
            }
            assertEquals(LENGTH, length);
        });
    }

    @Test
    void a_long_chain_of_application_identity_becomes_persistent() {
        int length = 5_000;
        KeyedNode first = null;
        for (int number = length; number > 0; number--) {
            first = new KeyedNode(number, first);
        }
        KeyedNode chain = first;
        store.run(manager -> manager.makePersistent(chain));
        store.run(manager -> {
            KeyedNode last = manager.getObjectById(KeyedNode.class, length);
            assertNull(last.getNext());
            assertEquals(3, manager.getObjectById(KeyedNode.class, 2).getNext().getNumber());
        });
    }

    @Test
    void a_chain_of_dependent_objects_is_deleted_with_its_first_object() {
        Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(chain(10_000))));
        store.run(manager -> manager.deletePersistent(manager.getObjectById(id)));
        store.run(manager ->
                assertEquals(0, ((List<?>) manager.newQuery(Node.class).execute()).size()));
    }
}
