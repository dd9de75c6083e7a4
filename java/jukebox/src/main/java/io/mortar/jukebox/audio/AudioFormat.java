package io.mortar.jukebox.audio;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Optional;

/** The formats of audio that the jukebox takes. The first bytes of a file tell which one it has. */
public enum AudioFormat {
    FLAC("audio/flac", "flac"),
    OGG("audio/ogg", "ogg"),
    WAV("audio/wav", "wav"),
    MP4("audio/mp4", "m4a"),
    MP3("audio/mpeg", "mp3");

    private static final int HEAD_BYTES = 12;

    private final String mediaType;
    private final String extension;

    AudioFormat(String mediaType, String extension) {
        this.mediaType = mediaType;
        this.extension = extension;
    }

    public String mediaType() {
        return mediaType;
    }

    public String extension() {
        return extension;
    }

    /** The format of a file, if it is one of these. */
    public static Optional<AudioFormat> of(Path file) throws IOException {
        byte[] head;
        try (InputStream in = Files.newInputStream(file)) {
            head = in.readNBytes(HEAD_BYTES);
        }
        return Arrays.stream(values()).filter(format -> format.begins(head)).findFirst();
    }

    private boolean begins(byte[] head) {
        return switch (this) {
            case FLAC -> has(head, 0, "fLaC");
            case OGG -> has(head, 0, "OggS");
            case WAV -> has(head, 0, "RIFF") && has(head, 8, "WAVE");
            case MP4 -> has(head, 4, "ftyp");
            case MP3 -> has(head, 0, "ID3") || head.length > 1 && head[0] == (byte) 0xff && (head[1] & 0xe6) == 0xe2;
        };
    }

    private static boolean has(byte[] head, int offset, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
        return head.length >= offset + bytes.length
                && Arrays.equals(head, offset, offset + bytes.length, bytes, 0, bytes.length);
    }
}
