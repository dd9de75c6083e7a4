package io.mortar.jukebox.web;

import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A part of a file that a request asks for (RFC 9110, section 14).
 *
 * @param end the offset behind the last byte; not behind {@code from} if the file has no such part
 */
record ByteRange(long from, long end) {
    private static final Pattern ONE = Pattern.compile("bytes=(\\d{0,18})-(\\d{0,18})");

    /**
     * Parses a header with one range. One that is malformed or has several ranges is ignored, as the standard permits.
     */
    static Optional<ByteRange> parse(String header, long size) {
        Matcher parts = ONE.matcher(header == null ? "" : header.replace(" ", ""));
        if (!parts.matches() || parts.group(1).isEmpty() && parts.group(2).isEmpty()) {
            return Optional.empty();
        }
        if (parts.group(1).isEmpty()) {
            long last = Long.parseLong(parts.group(2));
            return Optional.of(last == 0 ? new ByteRange(size, size) : new ByteRange(Math.max(0, size - last), size));
        }
        long from = Long.parseLong(parts.group(1));
        if (parts.group(2).isEmpty()) {
            return Optional.of(new ByteRange(from, size));
        }
        long last = Long.parseLong(parts.group(2));
        return last < from ? Optional.empty() : Optional.of(new ByteRange(from, Math.min(size, last + 1)));
    }

    boolean isEmpty() {
        return end <= from;
    }

    long length() {
        return end - from;
    }
}
