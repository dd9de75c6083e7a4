package io.mortar.bench.side;

import com.zaxxer.hikari.HikariDataSource;
import java.util.HashMap;
import java.util.Map;

/** DataNucleus on a relational database, with its own cache of the second level. */
final class DataNucleusSide implements PersistenceSide {
    private static final Map<String, Object> SETTINGS = Map.of(
            "datanucleus.cache.level2.type", "soft",
            // A collection that is read as a whole is kept in that cache; one that is read as it is used is not.
            "datanucleus.cache.collections.lazy", "false",
            "datanucleus.rdbms.statementBatchLimit", "50",
            // With the default, upper case, it does not find the schema "public" of PostgreSQL.
            "datanucleus.identifier.case", "LowerCase",
            "datanucleus.persistenceUnitLoadClasses", "true");

    private final ConnectionPool connections;
    private boolean hasTables;

    DataNucleusSide(ConnectionPool connections) {
        this.connections = connections;
    }

    @Override
    public OpenStore open() {
        HikariDataSource pool = connections.open();
        Map<String, Object> properties = new HashMap<>(SETTINGS);
        properties.put("jakarta.persistence.provider", "org.datanucleus.api.jakarta.PersistenceProviderImpl");
        properties.put("datanucleus.ConnectionFactory", pool);
        // Sequences and the schema use connections outside of the transaction.
        properties.put("datanucleus.ConnectionFactory2", pool);
        properties.put("datanucleus.schema.autoCreateAll", hasTables ? "false" : "true");
        hasTables = true;
        return new OpenStore(PersistenceSide.factory(properties), pool);
    }

    @Override
    public void afterLoad() {
        connections.analyze();
    }

    @Override
    public String description() {
        return Versions.of("datanucleus") + "; " + connections.description()
                + "; second-level cache soft with whole collections, statementBatchLimit 50";
    }
}
