package io.mortar.jukebox.sample;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jaudiotagger.audio.AudioFile;
import org.jaudiotagger.audio.AudioFileIO;
import org.jaudiotagger.audio.exceptions.CannotReadException;
import org.jaudiotagger.audio.exceptions.CannotWriteException;
import org.jaudiotagger.audio.exceptions.InvalidAudioFrameException;
import org.jaudiotagger.audio.exceptions.ReadOnlyFileException;
import org.jaudiotagger.tag.FieldKey;
import org.jaudiotagger.tag.Tag;
import org.jaudiotagger.tag.TagException;

/** Makes a folder of music to try the jukebox with: short tagged WAV files, about 10 MB together. */
public final class SampleMusic {
    private SampleMusic() {}

    /** Writes the files into a folder that exists. */
    public static void write(Path folder) throws IOException {
        int number = 0;
        for (SamplePiece piece : SamplePiece.all()) {
            write(piece, folder.resolve(String.format("%02d.wav", ++number)));
        }
    }

    static void write(SamplePiece piece, Path file) throws IOException {
        Files.write(file, Synthesizer.wav(piece.melody()));
        try {
            AudioFile audio = AudioFileIO.read(file.toFile());
            Tag tag = audio.getTagOrCreateAndSetDefault();
            tag.setField(FieldKey.TITLE, piece.title());
            tag.setField(FieldKey.ARTIST, piece.artist());
            tag.setField(FieldKey.ALBUM, piece.album());
            tag.setField(FieldKey.GENRE, piece.genre());
            tag.setField(FieldKey.YEAR, Integer.toString(piece.year()));
            tag.setField(FieldKey.TRACK, Integer.toString(piece.number()));
            audio.commit();
        } catch (CannotReadException
                | CannotWriteException
                | InvalidAudioFrameException
                | ReadOnlyFileException
                | TagException error) {
            throw new IOException("the tags of " + file + " cannot be written: " + error.getMessage(), error);
        }
    }
}
