package io.mortar.bench.side;

import java.util.Map;

/** Mortar with its plugin, with the defaults of both. */
final class MortarSide implements PersistenceSide {
    private final String url;

    MortarSide(String url) {
        this.url = url;
    }

    @Override
    public OpenStore open() {
        return new OpenStore(PersistenceSide.factory(Map.of(
                "jakarta.persistence.provider",
                "org.datanucleus.api.jakarta.PersistenceProviderImpl",
                "jakarta.persistence.jdbc.url",
                url,
                // Classes are prepared when the factory is made, as Hibernate does it, and not within a measurement.
                "datanucleus.persistenceUnitLoadClasses",
                "true")));
    }

    @Override
    public String description() {
        return Versions.of("mortar") + "; defaults";
    }
}
