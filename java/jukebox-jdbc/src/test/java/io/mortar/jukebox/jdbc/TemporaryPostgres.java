package io.mortar.jukebox.jdbc;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.junit.jupiter.api.Assumptions;

/** A server of PostgreSQL in a temporary directory, which ends with this process. */
final class TemporaryPostgres {
    private static final Path INSTALLED = Path.of("/usr/lib/postgresql");

    private final Path programs;
    private final Path directory;
    private final int port;

    private TemporaryPostgres(Path programs, Path directory, int port) {
        this.programs = programs;
        this.directory = directory;
        this.port = port;
    }

    /** Starts a server; the test is skipped if PostgreSQL is not installed. */
    static TemporaryPostgres start() {
        Assumptions.assumeTrue(Files.isDirectory(INSTALLED), "PostgreSQL is not installed in " + INSTALLED);
        try (ServerSocket free = new ServerSocket(0)) {
            Path directory = Files.createTempDirectory("jukebox-postgres-");
            TemporaryPostgres server = new TemporaryPostgres(newest(), directory, free.getLocalPort());
            free.close();
            server.begin();
            return server;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Path newest() throws IOException {
        try (var versions = Files.list(INSTALLED)) {
            return versions.max(Comparator.comparingInt(
                            each -> Integer.parseInt(each.getFileName().toString())))
                    .map(each -> each.resolve("bin"))
                    .orElseThrow(() -> new IOException("PostgreSQL is not in " + INSTALLED));
        }
    }

    private void begin() throws IOException {
        if (isRoot()) {
            run("chown", "postgres", directory.toString());
        }
        Path data = directory.resolve("data");
        runAsServer(
                "initdb",
                "--auth=trust",
                "--username=postgres",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                data.toString());
        Runtime.getRuntime().addShutdownHook(new Thread(this::stop));
        runAsServer(
                "pg_ctl",
                "start",
                "--wait",
                "--pgdata=" + data,
                "--log=" + directory.resolve("log"),
                "--options=-p " + port + " -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off");
    }

    private void stop() {
        try {
            runAsServer("pg_ctl", "stop", "--mode=immediate", "--pgdata=" + directory.resolve("data"));
            run("rm", "-rf", directory.toString());
        } catch (IOException error) {
            System.err.println("the temporary PostgreSQL does not stop: " + error);
        }
    }

    /** PostgreSQL refuses to run as root. */
    private void runAsServer(String program, String... arguments) throws IOException {
        List<String> command = new ArrayList<>();
        if (isRoot()) {
            command.addAll(List.of("runuser", "-u", "postgres", "--"));
        }
        command.add(programs.resolve(program).toString());
        command.addAll(Arrays.asList(arguments));
        run(command.toArray(String[]::new));
    }

    private static boolean isRoot() {
        return System.getProperty("user.name").equals("root");
    }

    private static void run(String... command) throws IOException {
        try {
            Process process = new ProcessBuilder(command)
                    .redirectErrorStream(true)
                    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                    .directory(Path.of("/").toFile())
                    .start();
            if (process.waitFor() != 0) {
                throw new IOException("exit status " + process.exitValue() + " of " + String.join(" ", command));
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        }
    }

    String url() {
        return "jdbc:postgresql://127.0.0.1:" + port + "/";
    }
}
