package io.mortar.jukebox.browser;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jukebox.sample.TestPiece;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Makes real audio files with the tools of Xiph: flac and oggenc (package vorbis-tools). */
final class AudioFiles {
    private AudioFiles() {}

    static Path flac(Path folder, String title, String artist, String album) throws IOException, InterruptedException {
        Path file = folder.resolve(title.replaceAll("\\W+", "-") + ".flac");
        List<String> command = new ArrayList<>(List.of("flac", "--silent", "--force", "-o", file.toString()));
        for (String tag : List.of(
                "TITLE=" + title, "ARTIST=" + artist, "ALBUM=" + album, "GENRE=Test", "TRACKNUMBER=1", "DATE=2001")) {
            command.add("--tag=" + tag);
        }
        return encode(command, file, folder, title);
    }

    static Path ogg(Path folder, String title, String artist, String album) throws IOException, InterruptedException {
        Path file = folder.resolve(title.replaceAll("\\W+", "-") + ".ogg");
        List<String> command = List.of(
                "oggenc",
                "--quiet",
                "-o",
                file.toString(),
                "--title",
                title,
                "--artist",
                artist,
                "--album",
                album,
                "--genre",
                "Test",
                "--tracknum",
                "2",
                "--date",
                "2001");
        return encode(new ArrayList<>(command), file, folder, title);
    }

    private static Path encode(List<String> command, Path file, Path folder, String title)
            throws IOException, InterruptedException {
        Path source = folder.resolve("source.wav");
        Files.write(source, TestPiece.longWav(title));
        command.add(source.toString());
        int status = new ProcessBuilder(command).inheritIO().start().waitFor();
        assertEquals(0, status, "exit status of " + command);
        Files.delete(source);
        return file;
    }
}
