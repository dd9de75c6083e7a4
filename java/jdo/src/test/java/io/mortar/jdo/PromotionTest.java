package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.AllTypes;
import java.util.Collection;
import java.util.List;
import java.util.function.DoublePredicate;
import java.util.stream.Stream;
import javax.jdo.JDOException;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** JDO 3.2, section 14.6.2: an integer that is compared with a floating number is promoted as in Java. */
class PromotionTest {
    private static final Store STORE = Store.inMemory();
    private static final List<Long> INTEGERS = List.of(
            Long.MIN_VALUE,
            -(1L << 53) - 1,
            0L,
            (1L << 24) + 1,
            (1L << 53) - 1,
            1L << 53,
            (1L << 53) + 1,
            Long.MAX_VALUE - 1,
            Long.MAX_VALUE);

    @BeforeAll
    static void populate() {
        STORE.run(manager -> INTEGERS.forEach(each -> {
            AllTypes types = new AllTypes();
            types.aLong = each;
            manager.makePersistent(types);
        }));
    }

    @AfterAll
    static void close() {
        STORE.close();
    }

    static Stream<Object> parameters() {
        return Stream.of(
                0x1p24f,
                0x1p53,
                0x1p53f,
                -0x1p53,
                0x1p63f,
                0x1p63,
                Math.nextDown(0x1p63),
                -0x1p63,
                0x1p70,
                -0x1p70f,
                Double.POSITIVE_INFINITY,
                1.5);
    }

    @ParameterizedTest
    @MethodSource("parameters")
    void an_integer_is_compared_as_in_java(Object parameter) {
        double bound = ((Number) parameter).doubleValue();
        boolean isFloat = parameter instanceof Float;
        STORE.run(manager -> {
            check(manager, "==", parameter, each -> each == bound, isFloat);
            check(manager, "!=", parameter, each -> each != bound, isFloat);
            check(manager, "<", parameter, each -> each < bound, isFloat);
            check(manager, "<=", parameter, each -> each <= bound, isFloat);
            check(manager, ">", parameter, each -> each > bound, isFloat);
            check(manager, ">=", parameter, each -> each >= bound, isFloat);
        });
    }

    @Test
    void a_sum_that_does_not_fit_is_refused() {
        STORE.run(manager -> {
            for (boolean inMemory : new boolean[] {false, true}) {
                Query<?> sum = manager.newQuery("select sum(aLong) from io.mortar.jdo.model.AllTypes where aLong > 0");
                Queries.evaluatedInMemory(sum, inMemory);
                String message = assertThrows(JDOException.class, sum::execute).getMessage();
                assertTrue(message.contains("does not fit"), message);
            }
        });
    }

    /** Compares the results of the store, and of an evaluation in memory, with those of Java. */
    private static void check(
            PersistenceManager manager, String operator, Object parameter, DoublePredicate test, boolean isFloat) {
        List<Long> expected = INTEGERS.stream()
                .filter(each -> test.test(isFloat ? (double) (float) (long) each : (double) (long) each))
                .toList();
        String filter = "aLong " + operator + " :p";
        Query<AllTypes> stored = manager.newQuery(AllTypes.class, filter);
        assertEquals(expected, integers(stored, parameter), filter + ' ' + parameter);
        Query<AllTypes> inMemory = manager.newQuery(AllTypes.class, filter);
        inMemory.setCandidates(
                (Collection<AllTypes>) manager.newQuery(AllTypes.class).execute());
        assertEquals(expected, integers(inMemory, parameter), filter + ' ' + parameter + " in memory");
    }

    private static List<Long> integers(Query<AllTypes> query, Object parameter) {
        return ((List<AllTypes>) query.execute(parameter))
                .stream().map(each -> each.aLong).sorted().toList();
    }
}
