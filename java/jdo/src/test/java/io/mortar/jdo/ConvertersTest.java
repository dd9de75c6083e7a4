package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Voucher;
import jakarta.persistence.PersistenceException;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Jakarta Persistence 3.1, section 3.9: converters of elements, and converters that fail. */
class ConvertersTest extends EntityTest {
    @Test
    void a_converter_applies_to_the_elements_of_a_collection_and_to_the_values_of_a_map() {
        run(manager -> {
            Voucher voucher = new Voucher(1, "Ann", null, null);
            voucher.getCodes().addAll(List.of("a1", "b2"));
            voucher.getNotes().put("first", "new");
            manager.persist(voucher);
        });
        run(manager -> {
            Voucher voucher = manager.find(Voucher.class, 1L);
            assertEquals(List.of("A1", "B2"), List.copyOf(voucher.getCodes()));
            assertEquals(Map.of("first", "NEW"), Map.copyOf(voucher.getNotes()));
        });
    }

    @Test
    void a_converter_that_fails_is_a_persistence_exception() {
        PersistenceException error = assertThrows(
                PersistenceException.class,
                () -> run(manager -> {
                    Voucher voucher = new Voucher(1, "Ann", null, null);
                    voucher.getCodes().add("bad");
                    manager.persist(voucher);
                    manager.flush();
                }));
        assertTrue(error.getMessage().contains("a bad text"), error.getMessage());
    }
}
