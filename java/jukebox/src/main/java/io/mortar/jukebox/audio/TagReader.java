package io.mortar.jukebox.audio;

import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.TrackTags;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jaudiotagger.audio.AudioFile;
import org.jaudiotagger.audio.AudioFileIO;
import org.jaudiotagger.tag.FieldKey;
import org.jaudiotagger.tag.Tag;

/** Reads the tags of audio files. Their text is cut to a reasonable length. */
public final class TagReader {
    public static final String UNKNOWN_ARTIST = "Unknown artist";
    public static final String UNKNOWN_ALBUM = "Unknown album";

    private static final int TEXT_LENGTH = 200;
    private static final int MAX_NUMBER = 9999;
    private static final int MAX_SECONDS = 24 * 60 * 60;
    private static final Pattern NUMBER = Pattern.compile("\\d{1,4}");
    private static final Pattern INVISIBLE = Pattern.compile("[\\p{Cntrl}\\p{Cf}\\p{Cs}]");

    private TagReader() {}

    /**
     * Reads the tags of a file. Its name on disk need not have the extension of its format.
     *
     * @param name the name that the file had; it is the title if the tags have none
     * @throws Refusal UNSUPPORTED, if the file is damaged or of an unknown codec
     */
    public static TrackTags read(Path file, AudioFormat format, String name) {
        AudioFile audio;
        try {
            audio = AudioFileIO.readAs(file.toFile(), format.extension());
        } catch (Exception | StackOverflowError error) {
            // The library has unchecked exceptions for some kinds of damage.
            throw new Refusal(
                    Refusal.Reason.UNSUPPORTED,
                    name + " cannot be read as " + format.name() + ": it is damaged, or its codec is not supported",
                    error);
        }
        Tag tag = audio.getTag();
        return new TrackTags(
                or(text(tag, FieldKey.TITLE), or(clean(withoutExtension(name)), "Untitled")),
                or(text(tag, FieldKey.ARTIST), or(text(tag, FieldKey.ALBUM_ARTIST), UNKNOWN_ARTIST)),
                or(text(tag, FieldKey.ALBUM), UNKNOWN_ALBUM),
                text(tag, FieldKey.GENRE),
                number(tag, FieldKey.YEAR),
                number(tag, FieldKey.DISC_NO),
                number(tag, FieldKey.TRACK),
                Math.max(0, Math.min(MAX_SECONDS, audio.getAudioHeader().getTrackLength())));
    }

    private static String text(Tag tag, FieldKey key) {
        if (tag == null) {
            return "";
        }
        try {
            String value = tag.getFirst(key);
            return value == null ? "" : clean(value);
        } catch (RuntimeException absentOrDamaged) {
            // The other fields are good all the same.
            return "";
        }
    }

    /** The first number of a field such as {@code 3/12} or {@code 1999-05-01}, or 0. */
    private static int number(Tag tag, FieldKey key) {
        Matcher digits = NUMBER.matcher(text(tag, key));
        return digits.find() ? Math.min(MAX_NUMBER, Integer.parseInt(digits.group())) : 0;
    }

    private static String clean(String text) {
        String visible = INVISIBLE.matcher(text).replaceAll(" ").strip();
        int end = visible.offsetByCodePoints(0, Math.min(TEXT_LENGTH, visible.codePointCount(0, visible.length())));
        return visible.substring(0, end).strip();
    }

    private static String withoutExtension(String name) {
        int dot = name.lastIndexOf('.');
        return dot > 0 ? name.substring(0, dot) : name;
    }

    private static String or(String text, String otherwise) {
        return text.isEmpty() ? otherwise : text;
    }
}
