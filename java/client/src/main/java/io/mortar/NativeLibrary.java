package io.mortar;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Locale;

/**
 * Loads the native library of the client.
 *
 * <p>It is the file that the system property {@value #PROPERTY} names. Without that property it is the resource
 * {@code /io/mortar/native/OS-ARCH/libmortar_java.so} (for Linux), which is copied to a private temporary file.
 */
final class NativeLibrary {
    static final String PROPERTY = "mortar.library";

    private static final String NAME = "mortar_java";
    /** Why the library cannot be loaded; null before the first attempt and if it is loaded. */
    private static String failure;

    private static boolean isLoaded;

    private NativeLibrary() {}

    /**
     * Loads the library, if it is not loaded.
     *
     * @throws UnsatisfiedLinkError if there is none for this platform, or it cannot be loaded; with what to do
     */
    static synchronized void load() {
        if (isLoaded) {
            return;
        }
        // Each call fails in the same way, with its own stack trace.
        if (failure != null) {
            throw new UnsatisfiedLinkError(failure);
        }
        try {
            String file = System.getProperty(PROPERTY);
            if (file != null) {
                loadFile(Path.of(file).toAbsolutePath());
            } else {
                loadResource(platform());
            }
            isLoaded = true;
        } catch (UnsatisfiedLinkError error) {
            failure = error.getMessage();
            throw error;
        }
    }

    private static void loadFile(Path file) {
        if (!Files.isRegularFile(file)) {
            throw new UnsatisfiedLinkError(
                    "the system property " + PROPERTY + " names " + file + ", which is not a file: set it to the"
                            + " path of " + System.mapLibraryName(NAME) + ", or remove it");
        }
        try {
            System.load(file.toString());
        } catch (UnsatisfiedLinkError error) {
            throw causedBy(
                    new UnsatisfiedLinkError(
                            "the native library of Mortar cannot be loaded from " + file + ": " + error.getMessage()),
                    error);
        }
    }

    private static void loadResource(String platform) {
        String resource = resourceOf(platform);
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new UnsatisfiedLinkError(missing(platform));
            }
            loadCopy(library);
        } catch (IOException error) {
            throw causedBy(
                    new UnsatisfiedLinkError("the native library of Mortar cannot be copied to "
                            + System.getProperty("java.io.tmpdir")
                            + ": set the system property java.io.tmpdir to a directory with room,"
                            + " or " + PROPERTY + " to the path of the library: " + error),
                    error);
        }
    }

    static String resourceOf(String platform) {
        return "/io/mortar/native/" + platform + '/' + System.mapLibraryName(NAME);
    }

    static String missing(String platform) {
        return "this jar of Mortar has no native library for " + platform + " (" + resourceOf(platform)
                + "): build crates/java of"
                + " Mortar on this platform (cargo build --release -p mortar-java), and set the system property "
                + PROPERTY
                + " to the path of " + System.mapLibraryName(NAME);
    }

    private static void loadCopy(InputStream library) throws IOException {
        Path directory = Files.createTempDirectory("mortar-java-", onlyForOwner());
        Path copy = directory.resolve(System.mapLibraryName(NAME));
        try {
            Files.copy(library, copy);
            try {
                System.load(copy.toString());
            } catch (UnsatisfiedLinkError error) {
                throw causedBy(
                        new UnsatisfiedLinkError("the native library of Mortar cannot be loaded from " + copy + ": "
                                + error.getMessage()
                                + "; if programs cannot run from there, set the system property java.io.tmpdir to"
                                + " another directory"),
                        error);
            }
        } finally {
            delete(directory, copy);
        }
    }

    /**
     * Deletes the copy now: a loaded library needs its file no more. Where the system refuses that, when the process
     * ends.
     */
    private static void delete(Path directory, Path copy) {
        try {
            Files.deleteIfExists(copy);
            Files.delete(directory);
        } catch (IOException stillInUse) {
            // What is registered last is deleted first.
            directory.toFile().deleteOnExit();
            copy.toFile().deleteOnExit();
        }
    }

    private static FileAttribute<?>[] onlyForOwner() {
        boolean isPosix = FileSystems.getDefault().supportedFileAttributeViews().contains("posix");
        return isPosix
                ? new FileAttribute<?>[] {
                    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
                }
                : new FileAttribute<?>[0];
    }

    /** The name of this platform in resources, such as {@code linux-x86_64}. */
    static String platform() {
        return platform(System.getProperty("os.name"), System.getProperty("os.arch"));
    }

    static String platform(String system, String architecture) {
        String os = system.toLowerCase(Locale.ROOT);
        String shortOs = os.startsWith("mac") ? "macos" : os.startsWith("windows") ? "windows" : os.replace(' ', '_');
        String arch = architecture.toLowerCase(Locale.ROOT);
        String shortArch = switch (arch) {
            case "amd64", "x86_64", "x64" -> "x86_64";
            case "aarch64", "arm64" -> "aarch64";
            default -> arch;
        };
        return shortOs + '-' + shortArch;
    }

    private static UnsatisfiedLinkError causedBy(UnsatisfiedLinkError error, Throwable cause) {
        error.initCause(cause);
        return error;
    }
}
