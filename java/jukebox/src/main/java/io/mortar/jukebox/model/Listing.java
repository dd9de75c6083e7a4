package io.mortar.jukebox.model;

import java.util.List;
import java.util.function.Function;

/**
 * A part of a list.
 *
 * @param more whether the list has elements behind these
 */
public record Listing<T>(List<T> items, boolean more) {
    /** Of up to one element more than the slice has, which tells whether there are more. */
    public static <S, T> Listing<T> of(List<? extends S> found, Slice slice, Function<? super S, ? extends T> view) {
        List<T> items = found.stream().limit(slice.limit()).<T>map(view).toList();
        return new Listing<>(items, found.size() > slice.limit());
    }
}
