package io.mortar.jukebox.model;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class SearchTextTest {
    @Test
    void keys_ignore_case_accents_and_spaces() {
        assertEquals("motley crue", SearchText.key("  MÖTLEY \u00a0\t Crüe "));
        assertEquals("fine", SearchText.key("ﬁne"));
    }

    @Test
    void queries_are_split_into_words() {
        assertEquals(List.of("fur", "elise"), SearchText.words("Für  Elise für"));
        assertThrows(Refusal.class, () -> SearchText.words("  "));
        assertThrows(Refusal.class, () -> SearchText.words("1 2 3 4 5 6 7 8 9"));
    }
}
