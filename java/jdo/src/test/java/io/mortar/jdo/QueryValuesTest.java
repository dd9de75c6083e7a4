package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.model.AllTypes;
import java.util.List;
import java.util.stream.Collectors;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Characters, enumerations and numbers of different types in JDOQL. */
class QueryValuesTest {
    private static final Store STORE = Store.inMemory();

    @AfterAll
    static void close() {
        STORE.close();
    }

    @BeforeAll
    static void populate() {
        STORE.run(manager -> {
            for (char letter = 'A'; letter <= 'C'; letter++) {
                AllTypes types = new AllTypes();
                types.aChar = letter;
                types.boxedChar = letter;
                types.anInt = letter;
                types.aByte = (byte) (letter - 'A');
                types.color = AllTypes.Color.values()[letter - 'A'];
                types.ordinal = types.color;
                manager.makePersistent(types);
            }
        });
    }

    private static String letters(Object found) {
        List<String> letters = ((List<?>) found)
                .stream().map(each -> "" + ((AllTypes) each).aChar).sorted().toList();
        return String.join("", letters);
    }

    private static Query<AllTypes> with(Query<AllTypes> query, Object parameter) {
        query.declareParameters(parameter.getClass().getName() + " p");
        return query;
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "aChar == 66 => B => store",
                "boxedChar > 65 => BC => store",
                "65 >= aChar => A => store",
                "aChar != 66 => AC => store",
                "aChar == 66.5 => => memory",
                "aChar < 1000000 => ABC => memory",
                "anInt == 'C' => C => store",
                "anInt > 'A' => BC => store",
                "anInt + 1 == 'C' => B => store",
                "aChar == anInt => ABC => memory",
                "aChar + 1 == 'C' => B => memory",
                "boxedChar - 1 == 'A' => B => memory",
                "-aChar < -65 => BC => memory",
                "~boxedChar == -67 => B => memory",
                "aChar + 'x' == 'Bx' => B => memory",
                "aChar + ('' + aChar) == 'AA' => A => memory",
                "color.toString() == 'GREEN' => B => memory",
                "color.ordinal() == 2 => C => memory",
                "color > 'BLUE' => AB => store",
                "color > 'BLUE' && color.ordinal() >= 0 => AB => memory",
                "ordinal > 'RED' => BC => store",
                "ordinal > 'RED' && color.ordinal() >= 0 => BC => memory",
            })
    void characters_are_numbers_and_constants_of_enumerations_have_names(String filter, String expected, String where) {
        STORE.run(manager -> {
            Query<AllTypes> query = manager.newQuery(AllTypes.class, filter);
            assertEquals(
                    expected == null ? "" : expected, letters(query.execute()), () -> "" + Queries.nativeQuery(query));
            assertEquals(where, Queries.inMemory(query).isEmpty() ? "store" : "memory");
        });
    }

    /** By the name or by the ordinal, as it is stored. */
    @ParameterizedTest
    @CsvSource({"color, CBA", "ordinal, ABC"})
    void an_enumeration_has_the_same_order_in_the_store_and_in_memory(String member, String expected) {
        STORE.run(manager -> {
            for (String order : List.of(member, member + ", color.ordinal()")) {
                Query<AllTypes> query = manager.newQuery(AllTypes.class);
                query.setOrdering(order);
                String letters = query.executeList().stream()
                        .map(each -> "" + each.aChar)
                        .collect(Collectors.joining());
                assertEquals(expected, letters, () -> "" + Queries.nativeQuery(query));
                assertEquals(order.equals(member), Queries.inMemory(query).isEmpty());
            }
            for (String filter : List.of("", " where color.ordinal() >= 0")) {
                Query<?> largest = manager.newQuery("select max(" + member + "), max(distinct " + member
                        + ") from io.mortar.jdo.model.AllTypes" + filter);
                AllTypes.Color last = AllTypes.Color.values()[expected.charAt(2) - 'A'];
                assertArrayEquals(new Object[] {last, last}, (Object[]) largest.execute());
            }
            Query<AllTypes> after = manager.newQuery(AllTypes.class, member + " > :p && color.ordinal() >= 0");
            AllTypes.Color first = AllTypes.Color.values()[expected.charAt(0) - 'A'];
            assertEquals(2, ((List<?>) after.execute(first)).size());
        });
    }

    @Test
    void numbers_of_all_types_are_compared_with_characters() {
        STORE.run(manager -> {
            for (Object number : List.of((byte) 66, (short) 66, 66, 66L, 66f, 66.0)) {
                assertEquals(
                        "B",
                        letters(with(manager.newQuery(AllTypes.class, "aChar == p"), number)
                                .execute(number)));
                assertEquals(
                        "A",
                        letters(with(manager.newQuery(AllTypes.class, "p > aChar"), number)
                                .execute(number)));
            }
            assertEquals(
                    "BC",
                    letters(with(manager.newQuery(AllTypes.class, "anInt >= p"), 'B')
                            .execute('B')));
        });
    }
}
