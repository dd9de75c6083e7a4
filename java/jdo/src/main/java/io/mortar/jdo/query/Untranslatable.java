package io.mortar.jdo.query;

/** A part of a query cannot be expressed in Mortar's query language, and has to be evaluated in memory. */
final class Untranslatable extends RuntimeException {
    Untranslatable(String why) {
        super(why, null, false, false);
    }
}
