package io.mortar;

import java.nio.ByteBuffer;
import java.util.AbstractList;
import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.Collection;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.RandomAccess;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators;

/**
 * Unmodifiable lists, sets and maps of values. The position of a buffer can be changed even if its bytes cannot, so
 * each access to one returns another buffer: whatever a reader does with that, the collection stays as it is.
 */
final class BufferCollections {
    private BufferCollections() {}

    static List<Object> list(List<Object> list) {
        return hasBuffer(list) ? new Elements(list) : Collections.unmodifiableList(list);
    }

    static Set<Object> set(Set<Object> set) {
        return hasBuffer(set) ? new Members(set) : Collections.unmodifiableSet(set);
    }

    static Map<Object, Object> map(Map<Object, Object> map) {
        return hasBuffer(map.keySet()) || hasBuffer(map.values()) ? new Entries(map) : Collections.unmodifiableMap(map);
    }

    private static boolean hasBuffer(Collection<Object> values) {
        for (Object value : values) {
            if (value instanceof ByteBuffer) {
                return true;
            }
        }
        return false;
    }

    private static Object own(Object value) {
        return value instanceof ByteBuffer buffer ? buffer.duplicate() : value;
    }

    private static final class Elements extends AbstractList<Object> implements RandomAccess {
        private final List<Object> list;

        Elements(List<Object> list) {
            this.list = list;
        }

        @Override
        public Object get(int index) {
            return own(list.get(index));
        }

        @Override
        public int size() {
            return list.size();
        }
    }

    private static final class Members extends AbstractSet<Object> {
        private final Set<Object> set;

        Members(Set<Object> set) {
            this.set = set;
        }

        @Override
        public boolean contains(Object value) {
            return set.contains(value);
        }

        @Override
        public Iterator<Object> iterator() {
            Iterator<Object> members = set.iterator();
            return new Iterator<>() {
                @Override
                public boolean hasNext() {
                    return members.hasNext();
                }

                @Override
                public Object next() {
                    return own(members.next());
                }
            };
        }

        @Override
        public Spliterator<Object> spliterator() {
            return Spliterators.spliterator(this, Spliterator.DISTINCT | Spliterator.ORDERED);
        }

        @Override
        public int size() {
            return set.size();
        }
    }

    private static final class Entries extends AbstractMap<Object, Object> {
        private final Map<Object, Object> map;

        Entries(Map<Object, Object> map) {
            this.map = map;
        }

        @Override
        public boolean containsKey(Object key) {
            return map.containsKey(key);
        }

        @Override
        public Object get(Object key) {
            return own(map.get(key));
        }

        @Override
        public Set<Entry<Object, Object>> entrySet() {
            return new AbstractSet<>() {
                @Override
                public Iterator<Entry<Object, Object>> iterator() {
                    Iterator<Entry<Object, Object>> entries = map.entrySet().iterator();
                    return new Iterator<>() {
                        @Override
                        public boolean hasNext() {
                            return entries.hasNext();
                        }

                        @Override
                        public Entry<Object, Object> next() {
                            Entry<Object, Object> entry = entries.next();
                            return new SimpleImmutableEntry<>(own(entry.getKey()), own(entry.getValue()));
                        }
                    };
                }

                @Override
                public int size() {
                    return map.size();
                }
            };
        }
    }
}
