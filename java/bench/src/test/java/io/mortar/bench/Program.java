package io.mortar.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/** Runs the program as script/bench does: in a process of its own, with the class path of a side. */
final class Program {
    private static final Path BUILD = Path.of(System.getProperty("bench.directory"));

    private Program() {}

    /** Runs a workload and returns its line of results. A failure of the program fails the test. */
    static String run(Path directory, String side, String url, String workload, String... options)
            throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(
                List.of(ProcessHandle.current().info().command().orElse("java"), "-cp", classPath(side), "-Xmx1g"));
        if (side.equals("eclipsestore")) {
            command.addAll(List.of("--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"));
        }
        String library = System.getProperty("mortar.library");
        if (library != null) {
            command.add("-Dmortar.library=" + library);
        }
        command.addAll(List.of("io.mortar.bench.Main", "--side", side, "--url", url, "--workload", workload));
        command.addAll(List.of("--seconds", "1", "--cold-runs", "1", "--items", "200"));
        command.addAll(Arrays.asList(options));
        File output = directory.resolve("stdout").toFile();
        File errors = directory.resolve("stderr").toFile();
        int status = new ProcessBuilder(command)
                .redirectOutput(output)
                .redirectError(errors)
                .start()
                .waitFor();
        assertEquals(0, status, () -> read(errors));
        return read(output);
    }

    private static String classPath(String side) {
        List<String> parts = switch (side) {
            case "mortar" -> List.of("enhanced", "classes", "sides/mortar/*", "sides/datanucleus/*");
            case "h2" -> List.of("classes", "sides/hibernate/*", "sides/jdbc/*");
            case "eclipsestore" -> List.of("classes", "sides/eclipsestore/*");
            default -> throw new IllegalArgumentException(side);
        };
        return parts.stream()
                .map(part -> BUILD + File.separator + part)
                .collect(Collectors.joining(File.pathSeparator));
    }

    private static String read(File file) {
        try {
            return Files.readString(file.toPath());
        } catch (IOException error) {
            return error.toString();
        }
    }
}
