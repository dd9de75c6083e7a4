package io.mortar.jdo.containers;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.wrappers.HashMap;

/**
 * A map of a persistent object. The map of DataNucleus inherits most of the methods below from
 * {@link java.util.HashMap}, whose own entries it does not use, so they would find and change nothing; and it does not
 * notice changes of its views.
 */
public final class PersistentHashMap<K, V> extends HashMap<K, V> {
    private final transient Entries entries = new Entries();

    /** Makes each method of a map out of those that DataNucleus implements. */
    private final class Entries extends AbstractMap<K, V> {
        @Override
        public V get(Object key) {
            return PersistentHashMap.this.get(key);
        }

        @Override
        public boolean containsKey(Object key) {
            return PersistentHashMap.this.containsKey(key);
        }

        @Override
        public V put(K key, V value) {
            return PersistentHashMap.this.put(key, value);
        }

        @Override
        public V remove(Object key) {
            return PersistentHashMap.this.remove(key);
        }

        @Override
        public Set<Entry<K, V>> entrySet() {
            return new EntrySet();
        }
    }

    private final class EntrySet extends AbstractSet<Map.Entry<K, V>> {
        @Override
        public int size() {
            return PersistentHashMap.this.size();
        }

        @Override
        public Iterator<Map.Entry<K, V>> iterator() {
            List<Map.Entry<K, V>> all = new ArrayList<>(delegate.entrySet());
            Iterator<Map.Entry<K, V>> each = all.iterator();
            return new Iterator<>() {
                private Map.Entry<K, V> last;

                @Override
                public boolean hasNext() {
                    return each.hasNext();
                }

                @Override
                public Map.Entry<K, V> next() {
                    last = new NoticedEntry(each.next());
                    return last;
                }

                @Override
                public void remove() {
                    each.remove();
                    PersistentHashMap.this.remove(last.getKey());
                }
            };
        }
    }

    private final class NoticedEntry extends AbstractMap.SimpleEntry<K, V> {
        NoticedEntry(Map.Entry<K, V> entry) {
            super(entry);
        }

        @Override
        public V setValue(V value) {
            put(getKey(), value);
            return super.setValue(value);
        }
    }

    public PersistentHashMap(DNStateManager owner, AbstractMemberMetaData member) {
        super(owner, member);
    }

    @Override
    public V getOrDefault(Object key, V other) {
        return entries.getOrDefault(key, other);
    }

    @Override
    public V putIfAbsent(K key, V value) {
        return entries.putIfAbsent(key, value);
    }

    @Override
    public V computeIfAbsent(K key, Function<? super K, ? extends V> function) {
        return entries.computeIfAbsent(key, function);
    }

    @Override
    public V computeIfPresent(K key, BiFunction<? super K, ? super V, ? extends V> function) {
        return entries.computeIfPresent(key, function);
    }

    @Override
    public V compute(K key, BiFunction<? super K, ? super V, ? extends V> function) {
        return entries.compute(key, function);
    }

    @Override
    public V merge(K key, V value, BiFunction<? super V, ? super V, ? extends V> function) {
        return entries.merge(key, value, function);
    }

    @Override
    public V replace(K key, V value) {
        return entries.replace(key, value);
    }

    @Override
    public boolean replace(K key, V expected, V value) {
        return entries.replace(key, expected, value);
    }

    @Override
    public boolean remove(Object key, Object expected) {
        return entries.remove(key, expected);
    }

    @Override
    public void replaceAll(BiFunction<? super K, ? super V, ? extends V> function) {
        entries.replaceAll(function);
    }

    @Override
    public Set<Map.Entry<K, V>> entrySet() {
        return entries.entrySet();
    }

    @Override
    public Set<K> keySet() {
        return entries.keySet();
    }

    @Override
    public Collection<V> values() {
        return entries.values();
    }
}
