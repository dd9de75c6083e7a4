package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Runs a program of the tests in a Java virtual machine of its own. */
final class ChildProgram {
    private ChildProgram() {}

    /** Runs a program with a heap of a fixed size. Returns its last line; fails if the program does. */
    static String run(Class<?> program, String heap, String... arguments) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx" + heap,
                "-Xms" + heap,
                "-XX:+AlwaysPreTouch",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                System.getProperty("java.class.path")));
        String library = System.getProperty("mortar.library");
        if (library != null && !library.isEmpty()) {
            command.add("-Dmortar.library=" + library);
        }
        command.add(program.getName());
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        try {
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
            assertEquals(0, process.waitFor(), output);
            return output.substring(output.lastIndexOf('\n') + 1);
        } finally {
            process.destroyForcibly();
        }
    }
}
