package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.model.AllTypes;
import java.util.List;
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
            })
    void characters_are_numbers_and_constants_of_enumerations_have_names(String filter, String expected, String where) {
        STORE.run(manager -> {
            Query<AllTypes> query = manager.newQuery(AllTypes.class, filter);
            assertEquals(
                    expected == null ? "" : expected, letters(query.execute()), () -> "" + Queries.nativeQuery(query));
            assertEquals(where, Queries.inMemory(query).isEmpty() ? "store" : "memory");
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
