package io.mortar.bench.side;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The versions of the libraries, from the build. */
public final class Versions {
    private static final Properties VERSIONS = read();

    private Versions() {}

    private static Properties read() {
        try (InputStream input = Versions.class.getResourceAsStream("/io/mortar/bench/versions.properties")) {
            Properties versions = new Properties();
            versions.load(input);
            return versions;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The version of a library, with its name. */
    public static String of(String library) {
        return VERSIONS.getProperty(library);
    }
}
