package io.mortar.jdo.containers;

import java.util.Comparator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.wrappers.ArrayList;

/**
 * A list of a persistent object. The list of DataNucleus inherits the methods below from {@link java.util.ArrayList},
 * whose own elements it does not use, so they would change nothing.
 */
public final class PersistentArrayList<E> extends ArrayList<E> {
    private final transient ListMethods<E> elements = new ListMethods<>(this);

    public PersistentArrayList(DNStateManager owner, AbstractMemberMetaData member) {
        super(owner, member);
    }

    @Override
    public boolean removeIf(Predicate<? super E> filter) {
        return elements.removeIf(filter);
    }

    @Override
    public void replaceAll(UnaryOperator<E> operator) {
        elements.replaceAll(operator);
    }

    @Override
    public void sort(Comparator<? super E> order) {
        elements.sort(order);
    }

    @Override
    public List<E> subList(int from, int to) {
        return elements.subList(from, to);
    }

    // ------------------------------------------------------------------------------------------- its ends, of Java 21

    public E getFirst() {
        requireElement();
        return get(0);
    }

    public E getLast() {
        requireElement();
        return get(size() - 1);
    }

    public E removeFirst() {
        requireElement();
        return remove(0);
    }

    public E removeLast() {
        requireElement();
        return remove(size() - 1);
    }

    private void requireElement() {
        if (isEmpty()) {
            throw new NoSuchElementException();
        }
    }
}
