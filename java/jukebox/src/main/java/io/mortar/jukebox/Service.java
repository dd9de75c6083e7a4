package io.mortar.jukebox;

import io.javalin.util.JavalinBindException;
import io.mortar.jukebox.audio.MusicImport;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.sample.SampleMusic;
import io.mortar.jukebox.web.WebOptions;
import io.mortar.jukebox.web.WebServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.LogManager;
import java.util.logging.Logger;
import picocli.CommandLine;
import picocli.CommandLine.Option;

/** The part of the command line that is the same for every store: serves the pages, and adds music. */
public final class Service {
    @Option(
            names = "--port",
            paramLabel = "PORT",
            defaultValue = "8080",
            description = "The port. Default: ${DEFAULT-VALUE}.")
    private int port;

    @Option(
            names = "--host",
            paramLabel = "ADDRESS",
            defaultValue = "127.0.0.1",
            description = "The address to listen on; 0.0.0.0 for all. Default: ${DEFAULT-VALUE}.")
    private String host;

    @Option(
            names = "--music",
            paramLabel = "FOLDER",
            description = "Adds the music in this folder that the store lacks.")
    private Path music;

    @Option(names = "--sample-music", description = "Adds some short pieces to try the jukebox with.")
    private boolean sampleMusic;

    @Option(
            names = "--upload-limit",
            paramLabel = "MIB",
            defaultValue = "200",
            description = "The largest file that can be added, in MiB. Default: ${DEFAULT-VALUE}.")
    private int uploadMib;

    @Option(
            names = "--trusted-proxy",
            paramLabel = "ADDRESS",
            description = "A proxy in front of the service; may be repeated. Its X-Forwarded-For tells the addresses of"
                    + " browsers, for which wrong passwords are counted.")
    private Set<InetAddress> trustedProxies = Set.of();

    /** Runs a command line and ends the process. */
    public static void main(Callable<Integer> command, String[] arguments) throws IOException {
        try (InputStream settings = Service.class.getResourceAsStream("/logging.properties")) {
            if (System.getProperty("java.util.logging.config.file") == null) {
                LogManager.getLogManager().readConfiguration(settings);
            }
        }
        System.exit(new CommandLine(command)
                .setExecutionExceptionHandler(new StartFailure())
                .execute(arguments));
    }

    /** Refuses invalid options before anything is opened. */
    public void check() {
        if (music != null && !Files.isDirectory(music)) {
            throw new IllegalArgumentException("--music: " + music + " is not a folder");
        }
        if (port < 0 || port > 65_535) {
            throw new IllegalArgumentException("--port is 1 to 65535, or 0 for any free one");
        }
        if (uploadMib < 1 || uploadMib > 1 << 20) {
            throw new IllegalArgumentException("--upload-limit is 1 to " + (1 << 20));
        }
    }

    /**
     * Serves until the process is asked to end, and closes the store.
     *
     * @param store the store, which is open
     */
    public void run(MusicStore store) throws IOException, InterruptedException {
        WebOptions options =
                new WebOptions(host, port, (long) uploadMib << 20, WebOptions.DEFAULT_HASH_ROUNDS, trustedProxies);
        CountDownLatch stopRequested = new CountDownLatch(1);
        CountDownLatch stopped = new CountDownLatch(1);
        try (WebServer server = WebServer.start(store, options)) {
            Runtime.getRuntime()
                    .addShutdownHook(new Thread(
                            () -> {
                                stopRequested.countDown();
                                await(stopped);
                            },
                            "jukebox-stop"));
            System.out.println("The jukebox is at http://" + options.host() + ':' + server.port() + '/');
            addMusic(store, options.uploadBytes(), () -> stopRequested.getCount() == 0);
            stopRequested.await();
            System.out.println("The jukebox stops.");
        } finally {
            store.close();
            stopped.countDown();
        }
    }

    private void addMusic(MusicStore store, long limit, BooleanSupplier isStopping) throws IOException {
        if (music == null && !sampleMusic) {
            return;
        }
        MusicImport into = new MusicImport(store.library(), houseAccount(store), limit, isStopping);
        int added = music == null ? 0 : into.add(music);
        if (sampleMusic) {
            Path folder = Files.createTempDirectory("jukebox-music-");
            try {
                SampleMusic.write(folder);
                added += into.add(folder);
            } finally {
                try (var files = Files.list(folder)) {
                    for (Path file : files.toList()) {
                        Files.delete(file);
                    }
                }
                Files.delete(folder);
            }
        }
        System.out.println("Added " + added + " tracks; the library has "
                + store.library().totals().tracks() + '.');
    }

    /** The account of imported music. Its password hash is empty, which matches no password, so a login is refused. */
    private static String houseAccount(MusicStore store) {
        try {
            return store.accounts().register(Accounts.HOUSE, "").id();
        } catch (Refusal taken) {
            return store.accounts()
                    .credentials(Accounts.HOUSE)
                    .orElseThrow(() -> taken)
                    .account()
                    .id();
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reports why the jukebox cannot run, in one line. */
    private static final class StartFailure implements CommandLine.IExecutionExceptionHandler {
        @Override
        public int handleExecutionException(Exception error, CommandLine command, CommandLine.ParseResult arguments) {
            String reason = error instanceof JavalinBindException
                    ? "the address is in use, or is not one of this machine: choose another --port or --host"
                    : Objects.requireNonNullElse(error.getMessage(), error.toString());
            command.getErr().println(command.getCommandName() + ": " + reason);
            Logger.getLogger(Service.class.getName()).log(Level.FINE, "the reason", error);
            return 1;
        }
    }
}
