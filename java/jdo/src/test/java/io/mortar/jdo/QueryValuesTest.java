package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.model.AllTypes;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
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
                types.integer = BigInteger.valueOf(letter);
                types.color = AllTypes.Color.values()[letter - 'A'];
                types.ordinal = types.color;
                types.aFloat = letter == 'B' ? 0.5f : 0.1f;
                types.aDouble = letter == 'B' ? 0.5 : 0.1;
                types.boxedDouble = letter == 'C' ? null : letter == 'B' ? -0.0 : 0.0;
                types.decimal = letter == 'C' ? null : new BigDecimal(letter == 'B' ? "1.00" : "1.0");
                types.bytes = letter == 'C' ? null : new byte[] {1};
                types.strings = new String[] {letter == 'B' ? null : "" + letter};
                types.text = letter == 'C' ? null : letter == 'B' ? "a\nb" : "ab";
                types.optionalText = letter == 'C' ? Optional.empty() : Optional.of(letter == 'B' ? "a" : "b");
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
                "strings.contains('A') => A => store",
                "strings.contains(null) => B => store",
                "!strings.contains(null) => AC => store",
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
                "(IF (anInt > 0) ordinal ELSE color) > 'RED' => BC => memory",
            })
    void characters_are_numbers_and_constants_of_enumerations_have_names(String filter, String expected, String where) {
        STORE.run(manager -> {
            Queries.check(manager.newQuery(AllTypes.class, filter), expected, QueryValuesTest::letters, where);
        });
    }

    /** The values, and their types. */
    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "select anInt where aFloat == aDouble => [Integer 66]",
                "select anInt where aFloat == 0.1 && aDouble == 0.1 order by anInt => [Integer 65, Integer 67]",
                "select sum(aFloat), sum(aDouble) => [Float 0.7, Double 0.7]",
                "select sum(distinct aFloat) => Float 0.6",
                "select decimal, count(this) group by decimal order by count(this) => [[null, Long 1], [BigDecimal 1.0, Long 2]]",
                "select distinct decimal order by decimal => [null, BigDecimal 1.0]",
                "select count(this) group by boxedDouble order by count(this) => [Long 1, Long 2]",
                "select count(this) group by bytes order by count(this) => [Long 1, Long 2]",
                "select text.length() order by anInt => [Integer 2, Integer 3, null]",
                "select Math.abs(anInt) order by anInt => [Integer 65, Integer 66, Integer 67]",
                "select Math.abs(aByte), Math.abs(aLong), Math.abs(aFloat), Math.abs(aDouble), Math.abs(decimal), Math.abs(integer) where anInt == 65 "
                        + "=> [[Integer 0, Long 0, Float 0.1, Double 0.1, BigDecimal 1.0, BigInteger 65]]",
                "select max(Math.abs(anInt)), sum(Math.abs(anInt)), min(Math.abs(aFloat)), sum(Math.abs(aFloat)) => [Integer 67, Long 198, Float 0.1, Float 0.7]",
                "select anInt where Math.abs(aFloat) == 0.1 order by anInt => [Integer 65, Integer 67]",
                // Literals have the types that they have in Java.
                "select 1.5, 1.5d, 1.5f, -1.5f, 1e3, 254l, anInt where anInt == 65 => [[Double 1.5, Double 1.5, Float 1.5, Float -1.5, Double 1000.0, Long 254, Integer 65]]",
                "select '1.5', 123456789.125, anInt where anInt == 65 => [[String 1.5, Double 1.23456789125E8, Integer 65]]",
                "select anInt where aDouble + 123456789.12 == 123456789.62 => [Integer 66]",
                "select anInt where aDouble + 123456789.12 > 123456789.61 && aDouble + 123456789.12 < 123456789.63 => [Integer 66]",
                "select anInt where text != '\\'1.5' && aDouble == .5 => [Integer 66]",
                "select optionalText order by optionalText => [null, String a, String b]",
                "select anInt where optionalText == null => [Integer 67]",
                "select anInt where optionalText.get() == 'a' || !optionalText.isPresent() order by anInt => [Integer 66, Integer 67]",
                // A pattern has line breaks like other characters.
                "select anInt where text.matches('a.*b') order by anInt => [Integer 65, Integer 66]",
                "select anInt where !text.matches('a.*') => []",
                // What an optional value and a value that is stored as a text have of texts.
                "select anInt where optionalText.startsWith('a') => [Integer 66]",
                "select anInt where !optionalText.matches('a.*') => [Integer 65]",
                "select anInt where color.endsWith('E') => [Integer 67]",
                "select color.toLowerCase() order by anInt => [String red, String green, String blue]",
                "select anInt where aChar.toLowerCase() == 'b' => [Integer 66]",
                "select integer + 1, -integer, -anInt where anInt == 65 => [[BigInteger 66, BigInteger -65, Long -65]]",
                "select -boxedDouble order by anInt => [Double -0.0, Double 0.0, null]",
            })
    void a_result_is_the_same_in_the_store_and_in_memory(String text, String expected) {
        STORE.run(manager -> {
            for (boolean inMemory : new boolean[] {false, true}) {
                Query<?> query = manager.newQuery(
                        text.replaceFirst("(?= where| group| order|$)", " from io.mortar.jdo.model.AllTypes"));
                Queries.check(
                        Queries.evaluatedInMemory(query, inMemory),
                        expected,
                        QueryValuesTest::typed,
                        inMemory ? "memory" : "store");
            }
        });
    }

    /** Functions that only an evaluation in memory has. */
    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "Math.sqrt(anInt - 1) => Double 8.0",
                "Math.sqrt(aChar - 1) => Double 8.0",
                "Math.exp(aByte) => Double 1.0",
                "Math.cos(aShort) => Double 1.0",
                "Math.sin(aFloat - aFloat) => Double 0.0",
                "Math.ceil(aFloat) => Double 1.0",
                "Math.floor(decimal) => Double 1.0",
                "Math.log(integer - 64) => Double 0.0",
                "Math.toDegrees(aLong) => Double 0.0",
                "Math.atan2(aFloat - aFloat, anInt) => Double 0.0",
                "Math.sqrt(boxedLong) => null",
                "Math.abs(aChar) => Integer 65",
                "(IF (anInt > 0) 1.5 ELSE 2.5) => Double 1.5",
            })
    void functions_of_numbers_of_all_types_have_the_types_of_java(String function, String expected) {
        STORE.run(manager -> {
            Query<AllTypes> query = manager.newQuery(AllTypes.class, "anInt == 65");
            query.setResult(function);
            assertEquals("[" + expected + "]", typed(query.execute()));
        });
    }

    /** Parentheses of a regular expression are a group, as in Java. */
    @ParameterizedTest
    @CsvSource({"(a|x).*, AB", "(ab), A", "a(\\n|c)b, B", "(?i)A.*B, AB", "[^b]*b, AB", "a.?b, AB", "a[(]b[)], ''"})
    void a_pattern_is_a_regular_expression_of_java(String pattern, String expected) {
        STORE.run(manager -> {
            Query<AllTypes> query = manager.newQuery(AllTypes.class, "text.matches('" + pattern + "')");
            assertEquals(expected, letters(query.execute()));
        });
    }

    private static String typed(Object value) {
        return value instanceof List<?> rows
                ? rows.stream().map(QueryValuesTest::typed).toList().toString()
                : value instanceof Object[] row
                        ? typed(Arrays.asList(row))
                        : value == null ? "null" : value.getClass().getSimpleName() + ' ' + value;
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
            Query<?> group = manager.newQuery("select max(" + member
                    + ") from io.mortar.jdo.model.AllTypes group by aBoolean having max(" + member + ") > :p");
            assertEquals(
                    List.of(AllTypes.Color.values()[expected.charAt(2) - 'A']),
                    group.execute(AllTypes.Color.values()[expected.charAt(0) - 'A']));
            Query<AllTypes> after = manager.newQuery(AllTypes.class, member + " > :p && color.ordinal() >= 0");
            AllTypes.Color first = AllTypes.Color.values()[expected.charAt(0) - 'A'];
            assertEquals(2, ((List<?>) after.execute(first)).size());
        });
    }

    @Test
    void an_ordinal_of_the_query_around_a_subquery_is_compared_as_one() {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery("select from io.mortar.jdo.model.AllTypes where 0 <"
                    + " (select count(t) from io.mortar.jdo.model.AllTypes t where this.ordinal > 'RED')");
            assertEquals("BC", letters(query.execute()));
        });
    }

    @Test
    void a_list_of_values_of_another_type_contains_no_member() {
        STORE.run(manager -> {
            for (String member : List.of("decimal", "anInt", "text", "color")) {
                Query<AllTypes> query = manager.newQuery(AllTypes.class, ":p.contains(" + member + ")");
                assertEquals("", letters(query.execute(List.of(true))));
            }
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
