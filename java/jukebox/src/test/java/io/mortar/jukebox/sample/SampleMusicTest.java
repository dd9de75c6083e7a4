package io.mortar.jukebox.sample;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jukebox.audio.AudioFormat;
import io.mortar.jukebox.audio.TagReader;
import io.mortar.jukebox.model.TrackTags;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SampleMusicTest {
    @Test
    void pieces_have_the_tags_and_the_length_that_they_say(@TempDir Path folder) throws IOException {
        SampleMusic.write(folder);
        for (int i = 0; i < SamplePiece.all().size(); i++) {
            SamplePiece piece = SamplePiece.all().get(i);
            Path file = folder.resolve(String.format("%02d.wav", i + 1));
            assertEquals(AudioFormat.WAV, AudioFormat.of(file).orElseThrow());
            TrackTags tags = TagReader.read(file, AudioFormat.WAV, "file.wav");
            assertEquals(piece.title(), tags.title());
            assertEquals(piece.artist(), tags.artist());
            assertEquals(piece.album(), tags.album());
            assertEquals(piece.genre(), tags.genre());
            assertEquals(piece.year(), tags.year());
            assertEquals(piece.number(), tags.number());
            assertTrue(Math.abs(tags.seconds() - piece.melody().seconds()) < 3, piece.title());
            assertTrue(Files.size(file) < 2 << 20, "a sample is small");
        }
    }
}
