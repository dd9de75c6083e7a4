package io.mortar.jukebox.sample;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Makes short tagged audio for tests. Pieces with other tags have other bytes. */
public final class TestPiece {
    private static final Melody MELODY = Melody.parse("A4:0.5 C5:0.5 E5:0.5", 240);

    private static final Melody LONG_MELODY = Melody.parse("A4 C5 E5 A5 E5 C5 A4:2 G4 B4 D5 G5 D5 B4 G4:2", 120);

    private TestPiece() {}

    /** Untagged audio of some seconds; its pitch depends on the title. */
    public static byte[] longWav(String title) {
        return Synthesizer.wav(new Melody(LONG_MELODY.notes(), 120 + Math.floorMod(title.hashCode(), 20)));
    }

    public static byte[] wav(String title, String artist, String album, String genre, int number) throws IOException {
        Path file = Files.createTempFile("piece-", ".wav");
        try {
            SampleMusic.write(new SamplePiece(title, artist, album, genre, 1999, number, MELODY), file);
            return Files.readAllBytes(file);
        } finally {
            Files.delete(file);
        }
    }
}
