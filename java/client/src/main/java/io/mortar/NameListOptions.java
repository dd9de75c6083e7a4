package io.mortar;

import java.util.Objects;

/**
 * Which names {@link Client#names(NameListOptions)} lists. It is immutable: each method returns other options.
 *
 * <p>Paths are absolute: they begin with {@code /}. The order is that of a walk: names of one directory are in the
 * order of their bytes, and what is in a directory follows its name.
 */
public final class NameListOptions {
    private final String prefix;
    private final String after;
    private final boolean directories;
    private final boolean oneLevel;

    private NameListOptions(String prefix, String after, boolean directories, boolean oneLevel) {
        this.prefix = prefix;
        this.after = after;
        this.directories = directories;
        this.oneLevel = oneLevel;
    }

    /**
     * Returns the options for all names that begin with a prefix, without those of directories.
     *
     * @param prefix the beginning of the paths, which may begin with {@code /}; empty for all names
     * @return the options
     */
    public static NameListOptions prefix(String prefix) {
        return new NameListOptions(Objects.requireNonNull(prefix), null, false, false);
    }

    /**
     * Begins after a name, whether or not it exists.
     *
     * @param path the name
     * @return other options
     */
    public NameListOptions after(String path) {
        return new NameListOptions(prefix, Objects.requireNonNull(path), directories, oneLevel);
    }

    /**
     * Lists directories, too. Without this, only other objects are listed.
     *
     * @return other options
     */
    public NameListOptions withDirectories() {
        return new NameListOptions(prefix, after, true, oneLevel);
    }

    /**
     * Lists only the names of one directory: those behind the last {@code /} of the prefix, directories among them.
     *
     * @return other options
     */
    public NameListOptions oneLevel() {
        return new NameListOptions(prefix, after, true, true);
    }

    void write(MessageWriter out) {
        out.string(prefix)
                .optional(after, MessageWriter::string)
                .bool(directories)
                .bool(oneLevel);
    }
}
