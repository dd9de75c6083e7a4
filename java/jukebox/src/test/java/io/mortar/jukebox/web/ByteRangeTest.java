package io.mortar.jukebox.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.NullSource;
import org.junit.jupiter.params.provider.ValueSource;

class ByteRangeTest {
    @ParameterizedTest
    @CsvSource({
        "bytes=0-0,0,1",
        "bytes=0-,0,100",
        "bytes=10-19,10,20",
        "bytes=-5,95,100",
        "bytes=-500,0,100",
        "bytes=90-1000,90,100",
        "bytes= 1 - 2,1,3"
    })
    void a_range_is_cut_at_the_end_of_the_file(String header, long from, long end) {
        assertEquals(Optional.of(new ByteRange(from, end)), ByteRange.parse(header, 100));
    }

    @ParameterizedTest
    @NullSource
    @ValueSource(
            strings = {
                "",
                "bytes",
                "bytes=",
                "bytes=-",
                "bytes=5-2",
                "bytes=0-1,3-4",
                "lines=0-1",
                "bytes=a-b",
                "bytes=99999999999999999999-",
                "bytes=--1"
            })
    void malformed_and_several_ranges_are_ignored(String header) {
        assertEquals(Optional.empty(), ByteRange.parse(header, 100));
    }

    @ParameterizedTest
    @ValueSource(strings = {"bytes=100-", "bytes=100-200", "bytes=-0", "bytes=999999999999999999-"})
    void a_range_behind_the_end_is_empty(String header) {
        assertTrue(ByteRange.parse(header, 100).orElseThrow().isEmpty());
    }

    @Test
    void an_empty_file_has_no_parts() {
        assertTrue(ByteRange.parse("bytes=0-", 0).orElseThrow().isEmpty());
    }
}
