package io.mortar.bench.side;

import com.zaxxer.hikari.HikariDataSource;
import jakarta.persistence.EntityManagerFactory;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.cache.CacheManager;
import javax.cache.Caching;
import javax.cache.configuration.MutableConfiguration;
import javax.cache.spi.CachingProvider;

/** Hibernate on a relational database, with Caffeine as its cache of the second level. */
final class HibernateSide implements PersistenceSide {
    private static final String CACHE = "com.github.benmanes.caffeine.jcache.spi.CaffeineCachingProvider";
    private static final String MODEL = "io.mortar.bench.model.";

    /** The regions of the cache: entities, and the collections of some of them. */
    private static final List<String> REGIONS = List.of(
            "Item",
            "Module",
            "Manual",
            "Assembly",
            "ComplexAssembly.subAssemblies",
            "BaseAssembly.components",
            "CompositePart",
            "CompositePart.parts",
            "CompositePart.usedIn",
            "Document",
            "AtomicPart",
            "AtomicPart.outgoing",
            "AtomicPart.incoming",
            "Connection");

    private static final Map<String, Object> SETTINGS = Map.of(
            "hibernate.cache.use_second_level_cache", "true",
            "hibernate.cache.region.factory_class", "jcache",
            "hibernate.jdbc.batch_size", "50",
            "hibernate.order_inserts", "true",
            "hibernate.order_updates", "true",
            "hibernate.default_batch_fetch_size", "100",
            "hibernate.connection.provider_disables_autocommit", "true");

    private final ConnectionPool connections;
    private boolean hasTables;

    HibernateSide(ConnectionPool connections) {
        this.connections = connections;
    }

    @Override
    public OpenStore open() {
        HikariDataSource pool = connections.open();
        CachingProvider provider = Caching.getCachingProvider(CACHE);
        CacheManager cache = provider.getCacheManager();
        for (String region : REGIONS) {
            // Hibernate stores its entries disassembled, so a copy of them is not needed.
            cache.createCache(MODEL + region, new MutableConfiguration<>().setStoreByValue(false));
        }
        Map<String, Object> properties = new HashMap<>(SETTINGS);
        properties.put("jakarta.persistence.provider", "org.hibernate.jpa.HibernatePersistenceProvider");
        properties.put("jakarta.persistence.nonJtaDataSource", pool);
        properties.put("hibernate.javax.cache.cache_manager", cache);
        properties.put("hibernate.hbm2ddl.auto", hasTables ? "none" : "create");
        hasTables = true;
        EntityManagerFactory factory = PersistenceSide.factory(properties);
        return new OpenStore(factory, provider, pool);
    }

    @Override
    public void afterLoad() {
        connections.analyze();
    }

    @Override
    public String description() {
        return Versions.of("hibernate") + "; " + connections.description()
                + "; batch_size 50, default_batch_fetch_size 100, order_inserts, provider_disables_autocommit";
    }
}
