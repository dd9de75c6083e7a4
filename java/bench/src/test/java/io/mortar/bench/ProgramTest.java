package io.mortar.bench;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The workloads on the sides that need no server. The program itself compares what it finds with what it has stored:
 * the numbers of visits and of found objects of OO7, and every committed change of small transactions.
 */
class ProgramTest {
    @TempDir
    Path directory;

    private String url(String side) {
        return switch (side) {
            case "mortar" -> "mortar:embedded:" + directory.resolve("mortar");
            case "h2" -> "jdbc:h2:file:" + directory.resolve("h2") + ";WRITE_DELAY=0";
            default -> directory.resolve(side).toString();
        };
    }

    @ParameterizedTest
    @ValueSource(strings = {"mortar", "h2"})
    void oo7_visits_and_finds_what_its_design_has(String side) throws IOException, InterruptedException {
        String results = Program.run(directory, side, url(side), "navigation");
        for (String name : new String[] {"t1_cold_ms", "t6_cold_ms", "t1_hot_ms", "t6_loaded_ms", "q1_ms", "q8_ms"}) {
            assertTrue(results.contains('"' + name + "\":"), results);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mortar", "h2", "eclipsestore"})
    void committed_transactions_are_found_again(String side) throws IOException, InterruptedException {
        String results = Program.run(directory, side, url(side), "transactions", "--threads", "2");
        assertTrue(results.contains("\"transactions_per_s\":"), results);
    }

    @ParameterizedTest
    @ValueSource(strings = {"mortar", "h2"})
    void lookups_and_fields_are_measured(String side) throws IOException, InterruptedException {
        assertTrue(Program.run(directory, side, url(side), "lookups").contains("\"lookups_per_s\":"));
        assertTrue(Program.run(directory, side, url(side), "fields").contains("\"access_ns\":"));
    }

    @Test
    void a_crossing_copies_the_object_and_little_more() throws IOException, InterruptedException {
        String results = Program.run(directory, "mortar", "mortar:memory", "crossings");
        assertTrue(results.contains("\"crossing_ns\":") && results.contains("\"reply_bytes\":"), results);
    }
}
