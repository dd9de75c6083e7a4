package io.mortar.jdo.model;

import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.net.URL;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Period;
import java.time.ZonedDateTime;
import java.util.Calendar;
import java.util.Currency;
import java.util.Date;
import java.util.Locale;
import java.util.Optional;
import java.util.UUID;
import javax.jdo.annotations.Column;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** Members of every type that is stored as a value. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class AllTypes {
    /** An enumeration. */
    public enum Color {
        RED,
        GREEN,
        BLUE
    }

    /** A value that is stored in serialized form. */
    public record Point(int x, int y) implements Serializable {}

    public boolean aBoolean;
    public byte aByte;
    public short aShort;
    public int anInt;
    public long aLong;
    public float aFloat;
    public double aDouble;
    public char aChar;
    public Boolean boxedBoolean;
    public Byte boxedByte;
    public Short boxedShort;
    public Integer boxedInt;
    public Long boxedLong;
    public Float boxedFloat;
    public Double boxedDouble;
    public Character boxedChar;
    public String text;
    public BigDecimal decimal;
    public BigInteger integer;
    public Color color;

    @Column(jdbcType = "INTEGER")
    public Color ordinal;

    public UUID uuid;

    @Persistent
    public URL url;

    @Persistent
    public URI uri;

    public Locale locale;

    @Persistent
    public Currency currency;

    public Date date;

    @Persistent
    public Calendar calendar;

    /** Two columns: its time zone is kept. */
    @Persistent(columns = {@Column(name = "time"), @Column(name = "zone")})
    public Calendar zonedCalendar;

    public java.sql.Date sqlDate;
    public java.sql.Timestamp sqlTimestamp;

    @Persistent
    public Instant instant;

    public LocalDate localDate;
    public LocalTime localTime;
    public LocalDateTime localDateTime;

    @Persistent
    public ZonedDateTime zoned;

    public Duration duration;
    public Period period;
    public byte[] bytes;
    public char[] chars;
    public int[] ints;
    public double[] doubles;
    public String[] strings;
    public Optional<String> optionalText = Optional.empty();
    public Optional<Integer> optionalNumber = Optional.empty();

    @Persistent(serialized = "true")
    public Point point;
}
