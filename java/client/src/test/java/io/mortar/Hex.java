package io.mortar;

import java.util.HexFormat;

/** Bytes as hexadecimal text with spaces. */
final class Hex {
    private Hex() {}

    static byte[] bytes(String text) {
        return HexFormat.of().parseHex(text.replace(" ", ""));
    }

    static String text(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
