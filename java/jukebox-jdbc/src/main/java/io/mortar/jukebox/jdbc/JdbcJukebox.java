package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.Service;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** The command line of the jukebox on PostgreSQL. */
@Command(
        name = "mortar-jukebox-jdbc",
        version = "mortar-jukebox-jdbc 0.1.0",
        mixinStandardHelpOptions = true,
        sortOptions = false,
        description = "Serves music to browsers from a database of PostgreSQL.")
public final class JdbcJukebox implements Callable<Integer> {
    @Option(
            names = "--database",
            paramLabel = "URL",
            required = true,
            description = "The database: jdbc:postgresql://HOST:PORT/DATABASE.")
    private String url;

    @Option(names = "--user", paramLabel = "NAME", required = true, description = "The user of the database.")
    private String user;

    @Option(names = "--password-file", paramLabel = "FILE", description = "A file with the password of that user.")
    private Path passwordFile;

    @Mixin
    private Service service;

    public static void main(String[] arguments) throws IOException {
        Service.main(new JdbcJukebox(), arguments);
    }

    @Override
    public Integer call() throws Exception {
        service.check();
        String password =
                passwordFile == null ? null : Files.readString(passwordFile).stripTrailing();
        service.run(new JdbcMusicStore(url, user, password));
        return 0;
    }
}
