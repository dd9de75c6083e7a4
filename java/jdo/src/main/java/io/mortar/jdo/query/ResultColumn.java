package io.mortar.jdo.query;

import java.util.function.Function;

/**
 * A column of a result.
 *
 * @param text the expression; null for a constant
 * @param toJava converts the stored value, or returns the constant
 */
record ResultColumn(String text, Function<Object, Object> toJava) {}
