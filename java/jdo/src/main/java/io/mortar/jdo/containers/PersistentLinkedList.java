package io.mortar.jdo.containers;

import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.ListIterator;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.wrappers.LinkedList;

/**
 * A linked list or a queue of a persistent object. The list of DataNucleus inherits the methods below from
 * {@link java.util.LinkedList}, whose own elements it does not use, so they would find and change nothing.
 */
public final class PersistentLinkedList<E> extends LinkedList<E> {
    private final transient ListMethods<E> elements = new ListMethods<>(this);

    public PersistentLinkedList(DNStateManager owner, AbstractMemberMetaData member) {
        super(owner, member);
    }

    // ------------------------------------------------------------------------------------------- a list

    @Override
    public Iterator<E> iterator() {
        return elements.iterator();
    }

    @Override
    public ListIterator<E> listIterator(int index) {
        return elements.listIterator(index);
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

    // ------------------------------------------------------------------------------------------- a queue

    @Override
    public boolean offer(E element) {
        return add(element);
    }

    @Override
    public boolean offerFirst(E element) {
        addFirst(element);
        return true;
    }

    @Override
    public boolean offerLast(E element) {
        return add(element);
    }

    @Override
    public void push(E element) {
        addFirst(element);
    }

    @Override
    public E element() {
        return getFirst();
    }

    @Override
    public E peek() {
        return isEmpty() ? null : getFirst();
    }

    @Override
    public E peekFirst() {
        return peek();
    }

    @Override
    public E peekLast() {
        return isEmpty() ? null : getLast();
    }

    @Override
    public E remove() {
        return removeFirst();
    }

    @Override
    public E pop() {
        return removeFirst();
    }

    @Override
    public E removeFirst() {
        getFirst(); // fails if the list is empty, as the interface says
        return remove(0);
    }

    @Override
    public E removeLast() {
        getLast();
        return remove(size() - 1);
    }

    @Override
    public E poll() {
        return isEmpty() ? null : removeFirst();
    }

    @Override
    public E pollFirst() {
        return poll();
    }

    @Override
    public E pollLast() {
        return isEmpty() ? null : removeLast();
    }

    @Override
    public boolean removeFirstOccurrence(Object element) {
        return remove(element);
    }

    @Override
    public boolean removeLastOccurrence(Object element) {
        int index = lastIndexOf(element);
        if (index >= 0) {
            remove(index);
        }
        return index >= 0;
    }

    @Override
    public Iterator<E> descendingIterator() {
        ListIterator<E> each = elements.listIterator(size());
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return each.hasPrevious();
            }

            @Override
            public E next() {
                return each.previous();
            }

            @Override
            public void remove() {
                each.remove();
            }
        };
    }
}
