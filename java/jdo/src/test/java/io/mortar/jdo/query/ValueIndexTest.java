package io.mortar.jdo.query;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.sql.Timestamp;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Objects that are found by their values. */
class ValueIndexTest {
    private static final List<Object> NUMBERS = List.of(1, 2L, 2.0, new BigDecimal("2.00"), Double.NaN, (byte) 3);
    private static final List<Object> TEXTS = List.of("a", 'a', "b", new StringBuilder("b"), "DAYS");
    private static final List<Object> OTHERS = Arrays.asList(
            TimeUnit.DAYS, new Date(5), new Timestamp(5), new byte[] {1}, new byte[] {1}, (long) 'a', null, true);

    @Test
    void no_object_with_the_same_value_is_missed() {
        for (List<Object> all :
                List.of(NUMBERS, TEXTS, OTHERS, List.<Object>of(TimeUnit.DAYS), List.<Object>of(new byte[] {1}))) {
            ValueIndex index = new ValueIndex(all, each -> each);
            for (Object value : OTHERS) {
                check(index, all, value);
            }
            NUMBERS.forEach(value -> check(index, all, value));
            TEXTS.forEach(value -> check(index, all, value));
        }
    }

    private static void check(ValueIndex index, List<Object> all, Object value) {
        Collection<Object> found = index.candidates(value);
        for (Object each : all) {
            boolean isSame = each == null || value == null ? each == value : Values.isSame(each, value);
            assertTrue(!isSame || found.contains(each), () -> value + " does not find " + each + " in " + all);
        }
    }

    @Test
    void values_of_one_kind_are_found_without_the_others() {
        assertEquals(List.of(2L, 2.0, new BigDecimal("2.00")), new ValueIndex(NUMBERS, each -> each).candidates(2));
        assertEquals(List.of("a", 'a'), new ValueIndex(TEXTS, each -> each).candidates('a'));
        assertEquals(List.of(), new ValueIndex(TEXTS, each -> each).candidates("c"));
    }
}
