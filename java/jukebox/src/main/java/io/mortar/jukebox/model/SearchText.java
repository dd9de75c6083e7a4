package io.mortar.jukebox.model;

import java.text.Normalizer;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/** Text without the differences that a search ignores: case, accents, and the kind and number of spaces. */
public final class SearchText {
    private static final int WORDS = 8;
    private static final Pattern MARKS = Pattern.compile("\\p{M}+");
    private static final Pattern SPACES = Pattern.compile("[\\s\\p{Z}]+");

    private SearchText() {}

    /** Two names with the same key are the same artist, album or genre. Keys also order lists. */
    public static String key(String text) {
        String marked = Normalizer.normalize(text, Normalizer.Form.NFKD);
        String plain = MARKS.matcher(marked).replaceAll("").toLowerCase(Locale.ROOT);
        return SPACES.matcher(plain).replaceAll(" ").strip();
    }

    /** The words that a search looks for; the text of what it finds contains each of them. */
    public static List<String> words(String query) {
        String key = key(query);
        if (key.isEmpty()) {
            throw new Refusal(Refusal.Reason.INVALID, "a search needs a word");
        }
        List<String> words = Arrays.stream(key.split(" ")).distinct().toList();
        if (words.size() > WORDS) {
            throw new Refusal(Refusal.Reason.INVALID, "a search has at most " + WORDS + " words");
        }
        return words;
    }
}
