package io.mortar.jukebox.sample;

import java.util.ArrayList;
import java.util.List;

/**
 * Notes one after the other, as text: {@code E4 F#4:2 -:0.5} are a quarter, a half and a rest of an eighth. A piece is
 * the tune with a bass two octaves below the first note of each bar.
 */
record Melody(List<Note> notes, int beatsPerMinute) {
    private static final String NAMES = "C D EF G A B";

    /**
     * @param frequency in hertz; 0 is a rest
     * @param beats the length in quarters
     */
    record Note(double frequency, double beats) {}

    static Melody parse(String text, int beatsPerMinute) {
        List<Note> notes = new ArrayList<>();
        for (String word : text.strip().split("\\s+")) {
            String[] parts = word.split(":");
            notes.add(new Note(frequency(parts[0]), parts.length > 1 ? Double.parseDouble(parts[1]) : 1));
        }
        return new Melody(List.copyOf(notes), beatsPerMinute);
    }

    private static double frequency(String name) {
        if (name.equals("-")) {
            return 0;
        }
        int octave = name.charAt(name.length() - 1) - '0';
        int accidental = name.contains("#") ? 1 : name.contains("b") ? -1 : 0;
        int semitonesFromA4 = NAMES.indexOf(name.charAt(0)) + accidental - 9 + (octave - 4) * 12;
        return 440 * Math.pow(2, semitonesFromA4 / 12.0);
    }

    double seconds() {
        return notes.stream().mapToDouble(Note::beats).sum() * secondsPerBeat();
    }

    double secondsPerBeat() {
        return 60.0 / beatsPerMinute;
    }
}
