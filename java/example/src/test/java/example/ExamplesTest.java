package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The programs of docs/java.md print what it says. */
class ExamplesTest {
    @Test
    void people_are_found_by_a_query(@TempDir Path directory) {
        String[] url = {"mortar:embedded:" + directory.resolve("data")};
        assertEquals("Bob, 30, works for Ann\n", outputOf(() -> People.main(url)));
        String twice = "Bob, 30, works for Ann\n".repeat(2);
        assertEquals(twice, outputOf(() -> People.main(url)), "the objects of the first run are there");
    }

    @Test
    void bytes_are_stored_under_a_name() {
        assertEquals("Hello, world\n", outputOf(() -> Hello.main(new String[0])));
    }

    private static String outputOf(Runnable program) {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            program.run();
        } finally {
            System.setOut(before);
        }
        return printed.toString(StandardCharsets.UTF_8).replace(System.lineSeparator(), "\n");
    }
}
