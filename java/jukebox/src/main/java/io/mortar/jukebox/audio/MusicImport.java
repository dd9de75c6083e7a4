package io.mortar.jukebox.audio;

import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.Sha256;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Adds the music of a folder to the library. Files that the library has are skipped. */
public final class MusicImport {
    private static final Logger LOG = Logger.getLogger(MusicImport.class.getName());
    private static final Set<String> EXTENSIONS = Set.of("flac", "ogg", "oga", "wav", "m4a", "mp4", "mp3");

    private final Library library;
    private final String account;
    private final long limit;
    private final BooleanSupplier isStopping;

    /**
     * @param account the account to which the tracks belong
     * @param limit the most bytes of a file
     * @param isStopping whether the import ends early
     */
    public MusicImport(Library library, String account, long limit, BooleanSupplier isStopping) {
        this.library = library;
        this.account = account;
        this.limit = limit;
        this.isStopping = isStopping;
    }

    /**
     * Adds all files of a folder and its subfolders.
     *
     * @return how many tracks are new
     */
    public int add(Path folder) throws IOException {
        List<Path> files = new ArrayList<>();
        Files.walkFileTree(folder, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
                if (attributes.isRegularFile() && hasAudioName(file)) {
                    files.add(file);
                }
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFileFailed(Path file, IOException error) {
                skip(file, error);
                return FileVisitResult.CONTINUE;
            }
        });
        Collections.sort(files);
        int added = 0;
        for (Path file : files) {
            if (isStopping.getAsBoolean()) {
                break;
            }
            added += addFile(file) ? 1 : 0;
        }
        return added;
    }

    private boolean addFile(Path file) {
        try {
            if (Files.size(file) > limit) {
                throw ReceivedFile.tooLarge(limit);
            }
            // Most files of a folder that is imported again are in the library: only the others are copied.
            if (library.contains(Sha256.of(file))) {
                return false;
            }
            addCopy(file);
            return true;
        } catch (Refusal refusal) {
            if (refusal.reason() == Refusal.Reason.UNAVAILABLE) {
                throw refusal;
            }
            skip(file, refusal);
            return false;
        } catch (IOException error) {
            skip(file, error);
            return false;
        }
    }

    /** Adds a file as it is now, even if it changes meanwhile. */
    private void addCopy(Path file) throws IOException {
        try (InputStream bytes = Files.newInputStream(file);
                ReceivedFile copy =
                        ReceivedFile.receive(bytes, file.getFileName().toString(), limit)) {
            library.add(account, copy.examine());
        }
    }

    private static void skip(Path file, Exception error) {
        String why = error instanceof Refusal ? error.getMessage() : error.toString();
        LOG.log(Level.WARNING, "{0} is skipped: {1}", new Object[] {file, why});
    }

    private static boolean hasAudioName(Path file) {
        String name = file.getFileName().toString();
        return EXTENSIONS.contains(name.substring(name.lastIndexOf('.') + 1).toLowerCase(Locale.ROOT));
    }
}
