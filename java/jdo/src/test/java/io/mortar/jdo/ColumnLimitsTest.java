package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Pen;
import io.mortar.jdo.entities.Voucher;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Jakarta Persistence 3.1, sections 11.1.9 and 11.1.25: columns that are not inserted or not updated. */
class ColumnLimitsTest extends EntityTest {
    @BeforeEach
    void store() {
        run(manager -> {
            Pen pen = new Pen(1, "blue");
            manager.persist(pen);
            manager.persist(new Pen(2, "red"));
            manager.persist(new Voucher(1, "Ann", "Bob", pen));
        });
    }

    @Test
    void what_is_not_insertable_is_not_stored_with_a_new_entity() {
        run(manager -> {
            Voucher voucher = manager.find(Voucher.class, 1L);
            assertEquals("Ann", voucher.getIssuer());
            assertNull(voucher.getCashier());
            assertNull(voucher.getGenerated());
            assertEquals("blue", voucher.getSignedWith().getLabel());
        });
    }

    @Test
    void what_is_not_updatable_keeps_its_first_value() {
        run(manager -> manager.find(Voucher.class, 1L).change("Cid", "Dan", manager.find(Pen.class, 2L)));
        run(manager -> {
            Voucher voucher = manager.find(Voucher.class, 1L);
            assertEquals("Ann", voucher.getIssuer());
            assertEquals("Dan", voucher.getCashier());
            assertNull(voucher.getGenerated());
            assertEquals("blue", voucher.getSignedWith().getLabel());
        });
    }

    /** Whether or not the entity is in memory. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void what_is_not_updatable_is_refused_in_bulk_updates(boolean isLoaded) {
        RuntimeException refused = assertThrows(
                RuntimeException.class,
                () -> run(manager -> {
                    assertTrue(!isLoaded || manager.find(Voucher.class, 1L) != null);
                    manager.createQuery("UPDATE Voucher v SET v.cashier = 'Eve', v.issuer = 'Eve'")
                            .executeUpdate();
                }));
        assertTrue(refused.getMessage().contains("issuer cannot be updated"), refused.getMessage());
        run(manager -> {
            Voucher voucher = manager.find(Voucher.class, 1L);
            assertEquals("Ann", voucher.getIssuer());
            assertNull(voucher.getCashier());
        });
    }

    @Test
    void another_view_of_a_column_is_stored() {
        run(manager -> assertNotNull(manager.find(Voucher.class, 1L).getBranchPen()));
    }
}
