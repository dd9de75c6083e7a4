package io.mortar.jdo.entities;

import jakarta.persistence.AttributeConverter;
import jakarta.persistence.Convert;
import jakarta.persistence.Converter;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;

/** An entity with a member of a type that only its converter knows. */
@Entity
public class Weather {
    /** A value that is neither known to DataNucleus nor can be serialized. */
    public record Temperature(double celsius) {}

    /** Stores a temperature as a number. */
    @Converter
    public static class TemperatureConverter implements AttributeConverter<Temperature, Double> {
        @Override
        public Double convertToDatabaseColumn(Temperature temperature) {
            return temperature == null ? null : temperature.celsius();
        }

        @Override
        public Temperature convertToEntityAttribute(Double celsius) {
            return celsius == null ? null : new Temperature(celsius);
        }
    }

    @Id
    private String place;

    @Convert(converter = TemperatureConverter.class)
    private Temperature temperature;

    protected Weather() {}

    public Weather(String place, Temperature temperature) {
        this.place = place;
        this.temperature = temperature;
    }

    public Temperature getTemperature() {
        return temperature;
    }
}
