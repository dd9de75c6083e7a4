package io.mortar.jukebox.audio;

import io.mortar.jukebox.model.NewTrack;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.Sha256;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;

/**
 * A temporary copy of a file that arrives as a stream. Some formats have their tags at the end, so the whole file is
 * needed before the tags can be read.
 */
public final class ReceivedFile implements AutoCloseable {
    private static final int PIECE_BYTES = 64 * 1024;

    private final Path file;
    private final String name;
    private final String sha256;
    private final long size;

    private ReceivedFile(Path file, String name, String sha256, long size) {
        this.file = file;
        this.name = name;
        this.sha256 = sha256;
        this.size = size;
    }

    /**
     * Receives all bytes of a stream.
     *
     * @param name the name that the sender gives the file
     * @param limit the most bytes that it may have
     * @throws Refusal TOO_LARGE
     */
    public static ReceivedFile receive(InputStream bytes, String name, long limit) throws IOException {
        Path file = Files.createTempFile("jukebox-", ".upload");
        try (OutputStream out = Files.newOutputStream(file)) {
            MessageDigest digest = Sha256.digest();
            byte[] piece = new byte[PIECE_BYTES];
            long size = 0;
            for (int read = bytes.read(piece); read >= 0; read = bytes.read(piece)) {
                size += read;
                if (size > limit) {
                    throw tooLarge(limit);
                }
                digest.update(piece, 0, read);
                out.write(piece, 0, read);
            }
            return new ReceivedFile(file, name, Sha256.hex(digest.digest()), size);
        } catch (IOException | RuntimeException error) {
            Files.deleteIfExists(file);
            throw error;
        }
    }

    public static Refusal tooLarge(long limit) {
        return new Refusal(Refusal.Reason.TOO_LARGE, "a file has at most " + (limit >> 20) + " MiB");
    }

    public String sha256() {
        return sha256;
    }

    /**
     * Examines the file.
     *
     * @throws Refusal UNSUPPORTED, if it is not audio of a known format
     */
    public NewTrack examine() throws IOException {
        AudioFormat format = AudioFormat.of(file)
                .orElseThrow(() -> new Refusal(
                        Refusal.Reason.UNSUPPORTED, name + " is not audio in FLAC, Ogg Vorbis, MP3, MP4 or WAV"));
        return new NewTrack(TagReader.read(file, format, name), format.mediaType(), sha256, file, size);
    }

    @Override
    public void close() throws IOException {
        Files.deleteIfExists(file);
    }
}
