package io.mortar.jdo;

import io.mortar.jdo.model.Palette;
import io.mortar.jdo.model.Palette.Color;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Elements of containers in queries, which have the same result in the store and in memory. */
class ElementQueriesTest {
    private static final Store STORE = Store.inMemory();

    @AfterAll
    static void close() {
        STORE.close();
    }

    /** A palette with all colours, one with a colour and null, and one without elements. */
    @BeforeAll
    static void populate() {
        STORE.run(manager -> {
            Palette full = new Palette("full", Color.GREEN);
            full.getNamed().addAll(List.of(Color.values()));
            full.getNumbered().addAll(List.of(Color.values()));
            full.getNumberedByUse().putAll(Map.of("x", Color.RED, "y", Color.BLUE));
            full.getUsesByNumbered().putAll(Map.of(Color.RED, "x", Color.BLUE, "y"));
            Palette some = new Palette("some", null);
            some.getNamed().addAll(Arrays.asList(Color.RED, null));
            some.getNumbered().addAll(Arrays.asList(Color.RED, null));
            some.getNumberedByUse().put("x", Color.BLUE);
            some.setParent(full);
            some.setRelatives(full, null);
            manager.makePersistentAll(full, some, new Palette("none", null));
        });
    }

    /** A query whose text has short names of the classes. */
    private static Query<?> query(PersistenceManager manager, String text) {
        String complete = text.replace("Color", Color.class.getName()).replace(" P ", " io.mortar.jdo.model.Palette ");
        return text.startsWith("SELECT")
                ? manager.newQuery("javax.jdo.query.JPQL", complete)
                : manager.newQuery(complete);
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "named.contains(favourite) => [full, some]",
                "!named.contains(favourite) => [none]",
                "named.contains(parent.favourite) => []",
                "!named.contains(parent.favourite) => [full, none, some]",
                "named.contains(null) => [some]",
                "!named.contains(null) => [full, none]",
                "relatives.contains(parent) => [some]",
                "relatives.contains(parent.parent) => [some]",
                "!relatives.contains(parent.parent) => [full, none]",
                "named.contains(k) && k > 'GREEN' => [full, some]",
                "numbered.contains(k) && k > 'GREEN' => [full]",
                "named.contains(k) && k == favourite => [full, some]",
            })
    void a_filter_by_elements_is_the_same_in_the_store_and_in_memory(String filter, String expected) {
        STORE.run(manager -> {
            for (boolean inMemory : new boolean[] {false, true}) {
                String variable = filter.contains("(k)") ? " variables Color k" : "";
                Query<?> query = query(manager, "select name from P where " + filter + variable + " order by name");
                Queries.check(
                        Queries.evaluatedInMemory(query, inMemory),
                        expected,
                        Queries::text,
                        inMemory ? "memory" : "store");
            }
        });
    }

    /** By the name or by the ordinal, as it is stored. */
    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "select k from P where named.contains(k) variables Color k order by k => [null, BLUE, GREEN, RED, RED]",
                "select k from P where numbered.contains(k) variables Color k order by k => [null, RED, RED, GREEN, BLUE]",
                "select k from P where numberedByUse.containsValue(k) variables Color k order by k => [RED, BLUE, BLUE]",
                "select k from P where usesByNumbered.containsKey(k) variables Color k order by k => [RED, BLUE]",
                "select name from P where numbered.get(0) < 'GREEN' order by name => [full, some]",
                "select name from P where numberedByUse.get('x') != null order by numberedByUse.get('x') => [full, some]",
                "SELECT k FROM P p JOIN p.named k ORDER BY k => [null, BLUE, GREEN, RED, RED]",
                "SELECT k FROM P p JOIN p.numbered k ORDER BY k => [null, RED, RED, GREEN, BLUE]",
                "SELECT k FROM P p, IN(p.numbered) k ORDER BY k DESC => [BLUE, GREEN, RED, RED, null]",
                "SELECT MIN(k), MAX(k) FROM P p JOIN p.numbered k => [RED, BLUE]",
                "SELECT MIN(k), MAX(k) FROM P p JOIN p.named k => [BLUE, RED]",
                "SELECT VALUE(e) FROM P p JOIN p.numberedByUse e ORDER BY VALUE(e) => [RED, BLUE, BLUE]",
                "SELECT KEY(e) FROM P p JOIN p.usesByNumbered e ORDER BY KEY(e) => [RED, BLUE]",
                "SELECT k FROM P p JOIN KEY(p.usesByNumbered) k ORDER BY k => [RED, BLUE]",
            })
    void constants_of_an_enumeration_have_the_order_of_their_container(String text, String expected) {
        STORE.run(manager -> Queries.check(query(manager, text), expected, Queries::text, "memory"));
    }
}
