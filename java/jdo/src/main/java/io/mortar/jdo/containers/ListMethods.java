package io.mortar.jdo.containers;

import java.util.AbstractList;
import java.util.List;

/**
 * Makes each method of a list out of the five that a list of DataNucleus implements. It inherits the others from a
 * class of the Java library, whose own elements it does not use.
 */
final class ListMethods<E> extends AbstractList<E> {
    private final List<E> list;

    ListMethods(List<E> list) {
        this.list = list;
    }

    @Override
    public E get(int index) {
        return list.get(index);
    }

    @Override
    public int size() {
        return list.size();
    }

    @Override
    public E set(int index, E element) {
        return list.set(index, element);
    }

    @Override
    public void add(int index, E element) {
        modCount++;
        list.add(index, element);
    }

    @Override
    public E remove(int index) {
        modCount++;
        return list.remove(index);
    }
}
