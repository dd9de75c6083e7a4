package io.mortar.jukebox.sample;

import java.util.List;

/** A piece of sample music: old tunes in the public domain. */
record SamplePiece(String title, String artist, String album, String genre, int year, int number, Melody melody) {
    private static final String ODE = """
            E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 E4:1.5 D4:0.5 D4:2
            E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 D4:1.5 C4:0.5 C4:2
            D4 D4 E4 C4 D4 E4:0.5 F4:0.5 E4 C4 D4 E4:0.5 F4:0.5 E4 D4 C4 D4 G3:2
            E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 D4:1.5 C4:0.5 C4:2""";
    private static final String ELISE = """
            E5:0.5 D#5:0.5 E5:0.5 D#5:0.5 E5:0.5 B4:0.5 D5:0.5 C5:0.5 A4:1.5 C4:0.5 E4:0.5 A4:0.5 B4:1.5 E4:0.5 G#4:0.5 B4:0.5 C5:1.5
            E4:0.5 E5:0.5 D#5:0.5 E5:0.5 D#5:0.5 E5:0.5 B4:0.5 D5:0.5 C5:0.5 A4:1.5 C4:0.5 E4:0.5 A4:0.5 B4:1.5 E4:0.5 C5:0.5 B4:0.5
            A4:3""";
    private static final String MINUET = """
            D5 G4:0.5 A4:0.5 B4:0.5 C5:0.5 D5 G4 G4 E5 C5:0.5 D5:0.5 E5:0.5 F#5:0.5 G5 G4 G4
            C5 D5:0.5 C5:0.5 B4:0.5 A4:0.5 B4 C5:0.5 B4:0.5 A4:0.5 G4:0.5 F#4 G4:0.5 A4:0.5 B4:0.5 G4:0.5 A4:3
            D5 G4:0.5 A4:0.5 B4:0.5 C5:0.5 D5 G4 G4 E5 C5:0.5 D5:0.5 E5:0.5 F#5:0.5 G5 G4 G4
            C5 D5:0.5 C5:0.5 B4:0.5 A4:0.5 B4 C5:0.5 B4:0.5 A4:0.5 G4:0.5 A4 B4:0.5 A4:0.5 G4:0.5 F#4:0.5 G4:3""";
    private static final String PRELUDE = """
            C4:0.5 E4:0.5 G4:0.5 C5:0.5 E5:0.5 G4:0.5 C5:0.5 E5:0.5 C4:0.5 D4:0.5 A4:0.5 D5:0.5 F5:0.5 A4:0.5 D5:0.5 F5:0.5
            B3:0.5 D4:0.5 G4:0.5 D5:0.5 F5:0.5 G4:0.5 D5:0.5 F5:0.5 C4:0.5 E4:0.5 G4:0.5 C5:0.5 E5:0.5 G4:0.5 C5:0.5 E5:0.5
            C4:0.5 E4:0.5 A4:0.5 E5:0.5 A5:0.5 A4:0.5 E5:0.5 A5:0.5 C4:0.5 D4:0.5 F#4:0.5 A4:0.5 D5:0.5 F#4:0.5 A4:0.5 D5:0.5
            B3:0.5 D4:0.5 G4:0.5 D5:0.5 G5:0.5 G4:0.5 D5:0.5 G5:0.5 C4:0.5 E4:0.5 G4:0.5 C5:0.5 E5:4""";
    private static final String GREENSLEEVES = """
            A4 C5:2 D5 E5:1.5 F5:0.5 E5 D5:2 B4 G4:1.5 A4:0.5 B4 C5:2 A4 A4:1.5 G#4:0.5 A4 B4:2 G#4 E4:2
            A4 C5:2 D5 E5:1.5 F5:0.5 E5 D5:2 B4 G4:1.5 A4:0.5 B4 C5:1.5 B4:0.5 A4 G#4:1.5 F#4:0.5 G#4 A4:3""";
    private static final String SCARBOROUGH = """
            D4:2 D4 A4:2 A4 E4:1.5 F4:0.5 E4 D4:3 -:1 A4 C5 D5:2 C5 A4 B4 G4 A4:3 -:1
            D5 D5 C5:2 A4 A4 G4 F4 E4 C4:3 D4:2 A4 G4:2 F4 E4 D4 C4 D4:4""";
    private static final String JACQUES = """
            F4 G4 A4 F4 F4 G4 A4 F4 A4 Bb4 C5:2 A4 Bb4 C5:2
            C5:0.5 D5:0.5 C5:0.5 Bb4:0.5 A4 F4 C5:0.5 D5:0.5 C5:0.5 Bb4:0.5 A4 F4 F4 C4 F4:2 F4 C4 F4:2""";
    private static final String STAR = """
            C4 C4 G4 G4 A4 A4 G4:2 F4 F4 E4 E4 D4 D4 C4:2 G4 G4 F4 F4 E4 E4 D4:2 G4 G4 F4 F4 E4 E4 D4:2
            C4 C4 G4 G4 A4 A4 G4:2 F4 F4 E4 E4 D4 D4 C4:2""";
    private static final String LULLABY = """
            E4:0.5 E4:0.5 G4:1.5 E4:0.5 E4 G4 -:1 E4:0.5 G4:0.5 C5 B4:1.5 A4:0.5 A4 G4 D4:0.5 E4:0.5 F4 D4 D4:0.5 E4:0.5 F4
            -:1 D4:0.5 F4:0.5 B4:0.5 A4:0.5 G4 B4 C5:3""";
    private static final String MORNING = """
            G5 E5 D5 C5 D5 E5 G5 E5 D5 C5 D5:0.5 E5:0.5 D5:0.5 E5:0.5 G5 E5 G5 A5 E5 A5 G5 E5 D5 C5:3
            B4 G4 F#4 E4 F#4 G4 B4 G4 F#4 E4 F#4:0.5 G4:0.5 F#4:0.5 G4:0.5 B4 G4 B4 C#5 G#4 C#5 B4 G#4 F#4 E4:3""";

    static List<SamplePiece> all() {
        return List.of(
                new SamplePiece(
                        "Ode to Joy",
                        "Ludwig van Beethoven",
                        "Symphony No. 9",
                        "Classical",
                        1824,
                        4,
                        Melody.parse(ODE, 132)),
                new SamplePiece(
                        "Für Elise",
                        "Ludwig van Beethoven",
                        "Bagatelles",
                        "Classical",
                        1810,
                        1,
                        Melody.parse(ELISE, 120)),
                new SamplePiece(
                        "Minuet in G",
                        "Christian Petzold",
                        "Notebook for Anna Magdalena",
                        "Baroque",
                        1725,
                        2,
                        Melody.parse(MINUET, 126)),
                new SamplePiece(
                        "Prelude in C",
                        "Johann Sebastian Bach",
                        "The Well-Tempered Clavier",
                        "Baroque",
                        1722,
                        1,
                        Melody.parse(PRELUDE, 108)),
                new SamplePiece(
                        "Greensleeves",
                        "Traditional",
                        "Songs of the British Isles",
                        "Folk",
                        1580,
                        1,
                        Melody.parse(GREENSLEEVES, 116)),
                new SamplePiece(
                        "Scarborough Fair",
                        "Traditional",
                        "Songs of the British Isles",
                        "Folk",
                        1670,
                        2,
                        Melody.parse(SCARBOROUGH, 120)),
                new SamplePiece(
                        "Frère Jacques",
                        "Traditional",
                        "Nursery Tunes",
                        "Children's Music",
                        1780,
                        1,
                        Melody.parse(JACQUES, 112)),
                new SamplePiece(
                        "Twinkle, Twinkle, Little Star",
                        "Traditional",
                        "Nursery Tunes",
                        "Children's Music",
                        1761,
                        2,
                        Melody.parse(STAR, 116)),
                new SamplePiece(
                        "Cradle Song",
                        "Johannes Brahms",
                        "Five Songs",
                        "Classical",
                        1868,
                        4,
                        Melody.parse(LULLABY, 84)),
                new SamplePiece(
                        "Morning Mood", "Edvard Grieg", "Peer Gynt", "Classical", 1875, 1, Melody.parse(MORNING, 138)));
    }
}
