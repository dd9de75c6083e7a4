package io.mortar;

/** The first byte of an encoded value. Codes never change; a new type of value gets a new one. */
final class ValueTag {
    static final int NULL = 0x00;
    static final int FALSE = 0x01;
    static final int TRUE = 0x02;
    static final int INT64 = 0x03;
    static final int FLOAT64 = 0x04;
    static final int DECIMAL = 0x05;
    static final int STRING = 0x06;
    static final int BYTES = 0x07;
    static final int DATE = 0x08;
    static final int TIMESTAMP = 0x09;
    static final int REFERENCE = 0x0a;
    static final int LIST = 0x0b;
    static final int SET = 0x0c;
    static final int MAP = 0x0d;

    private ValueTag() {}
}
