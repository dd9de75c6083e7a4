package io.mortar.jukebox;

import io.mortar.jukebox.jdo.JdoMusicStore;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** The command line of the jukebox on Mortar. */
@Command(
        name = "mortar-jukebox",
        version = "mortar-jukebox 0.1.0",
        mixinStandardHelpOptions = true,
        sortOptions = false,
        description = "Serves music to browsers. Any number of instances can share a store.",
        footer = {
            "",
            "Examples:",
            "  java -jar mortar-jukebox.jar --directory jukebox-data --sample-music",
            "  java -jar mortar-jukebox.jar --store mortar://localhost:6678/main --port 8081 --music ~/Music"
        })
public final class Jukebox implements Callable<Integer> {
    @ArgGroup(multiplicity = "1")
    private Location location;

    @Mixin
    private Service service;

    @Option(names = "--user", paramLabel = "NAME", description = "The user of the store.")
    private String user;

    @Option(names = "--password-file", paramLabel = "FILE", description = "A file with the password of that user.")
    private Path passwordFile;

    @Option(
            names = "--ca-file",
            paramLabel = "FILE",
            description = "A file with the certificates of the authorities that may sign the certificate of the store.")
    private Path caFile;

    /** Where the objects are. */
    private static final class Location {
        @Option(
                names = "--store",
                paramLabel = "URL",
                required = true,
                description = "The space of a cluster: mortar://HOST:PORT/SPACE.")
        private String store;

        @Option(
                names = "--directory",
                paramLabel = "DIR",
                required = true,
                description = "A directory for a cluster within this process; it is created.")
        private Path directory;

        String url() {
            return store != null ? store : "mortar:embedded:" + directory.toAbsolutePath();
        }
    }

    public static void main(String[] arguments) throws IOException {
        Service.main(new Jukebox(), arguments);
    }

    @Override
    public Integer call() throws Exception {
        if (location.store != null && !location.store.startsWith("mortar://")) {
            throw new IllegalArgumentException("--store has the form mortar://HOST:PORT/SPACE, not " + location.store);
        }
        service.check();
        if (location.directory != null) {
            createDirectory(location.directory);
        }
        service.run(JdoMusicStore.open(location.url(), storeOptions()));
        return 0;
    }

    private static void createDirectory(Path directory) {
        try {
            Files.createDirectories(directory);
        } catch (IOException error) {
            throw new IllegalArgumentException("--directory: " + directory + " cannot be created: " + error, error);
        }
    }

    private Map<String, String> storeOptions() throws IOException {
        Map<String, String> options = new HashMap<>();
        if (user != null) {
            options.put("javax.jdo.option.ConnectionUserName", user);
        }
        if (passwordFile != null) {
            options.put(
                    "javax.jdo.option.ConnectionPassword",
                    Files.readString(passwordFile).stripTrailing());
        }
        if (caFile != null) {
            options.put("mortar.caFile", caFile.toString());
        }
        return options;
    }
}
