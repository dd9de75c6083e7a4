package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.entities.Voucher;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Jakarta Persistence 3.1, sections 4.4.2 and 4.8.6: the types of arithmetic, and the case of identification variables.
 */
class JpqlResultTypesTest {
    private static final EntityManagerFactory FACTORY = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));

    @BeforeAll
    static void populate() {
        Store.inTransaction(FACTORY, manager -> {
            Voucher voucher = new Voucher(1, "Ann", null, null);
            voucher.getCodes().add("A");
            manager.persist(voucher);
        });
    }

    @AfterAll
    static void close() {
        FACTORY.close();
    }

    private static Object single(String query) {
        EntityManager manager = FACTORY.createEntityManager();
        try {
            return manager.createQuery(query).getSingleResult();
        } finally {
            manager.close();
        }
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "v.copies + 1 | Integer | 4",
                "v.copies * v.pages | Integer | 15",
                "-v.pages | Integer | -5",
                "v.copies + v.serial | Long | 10",
                "v.pages + 1L | Long | 6",
                "v.weight * 2 | Float | 3.0",
                "v.weight + v.copies | Float | 4.5",
                "v.weight * 2.0 | Double | 3.0",
                "v.pages * 1000000000 | Long | 5000000000",
                // Evaluated in memory.
                "v.copies + LENGTH(v.issuer) | Integer | 6",
            })
    void arithmetic_has_the_type_of_its_operands(String expression, String type, String value) {
        Object result = single("SELECT " + expression + " FROM Voucher v");
        assertEquals(type + ' ' + value, result.getClass().getSimpleName() + ' ' + result);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "v.cashier MEMBER OF v.tags | 0",
                "v.cashier NOT MEMBER OF v.tags | 1",
                "v.cashier NOT MEMBER OF v.codes | 0",
                "v.cashier MEMBER OF v.codes | 0",
                "v.issuer NOT MEMBER OF v.codes | 1",
                // Evaluated in memory.
                "v.cashier NOT MEMBER OF v.tags AND SUBSTRING(v.issuer, 2, 1) = 'n' | 1",
                "v.cashier NOT MEMBER OF v.codes AND SUBSTRING(v.issuer, 2, 1) = 'n' | 0",
            })
    void null_is_an_element_of_no_empty_collection(String condition, long found) {
        assertEquals(found, single("SELECT COUNT(v) FROM Voucher v WHERE " + condition));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "SELECT v.issuer FROM Voucher V",
                "SELECT V.issuer FROM Voucher v WHERE v.pages = 5 ORDER BY V.issuer",
                "SELECT v.issuer FROM Voucher V JOIN v.codes C WHERE c = 'A'",
                "SELECT v.issuer FROM Voucher V GROUP BY v.issuer HAVING COUNT(V) = 1",
                "SELECT v.issuer FROM Voucher V WHERE EXISTS (SELECT W FROM Voucher w WHERE W.serial = v.serial)",
            })
    void the_case_of_identification_variables_is_ignored(String query) {
        assertEquals("Ann", single(query));
    }
}
