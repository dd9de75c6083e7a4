package io.mortar.bench.side;

import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.Map;

/** A store behind Jakarta Persistence. */
public interface PersistenceSide {
    /** Connects. The caches of a new factory are empty. Classes and tables that do not exist are created. */
    OpenStore open();

    /** What the side does once after a large load, such as collecting the statistics of the planner. */
    default void afterLoad() {}

    /** What the report says about the versions and settings of this side. */
    String description();

    /** The side with this name, or null if it is not one of Jakarta Persistence. */
    static PersistenceSide of(String name, String url, int threads) {
        return switch (name) {
            case "mortar" -> new MortarSide(url);
            case "datanucleus" -> new DataNucleusSide(new ConnectionPool(url, threads));
            case "hibernate", "h2" -> new HibernateSide(new ConnectionPool(url, threads));
            default -> null;
        };
    }

    /** Creates a factory of the persistence unit. */
    static EntityManagerFactory factory(Map<String, Object> properties) {
        return Persistence.createEntityManagerFactory("bench", properties);
    }
}
