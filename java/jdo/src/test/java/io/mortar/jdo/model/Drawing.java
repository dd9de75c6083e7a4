package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.jdo.annotations.Element;
import javax.jdo.annotations.Extension;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Key;
import javax.jdo.annotations.Order;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;
import javax.jdo.annotations.Value;

/** References to interfaces and to any object, and containers of embedded objects. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Drawing {
    @Persistent
    @Extension(
            vendorName = "datanucleus",
            key = "implementation-classes",
            value = "io.mortar.jdo.model.Circle,io.mortar.jdo.model.Square")
    private Shape main;

    @Persistent
    @Element(types = Shape.class)
    @Extension(
            vendorName = "datanucleus",
            key = "implementation-classes",
            value = "io.mortar.jdo.model.Circle,io.mortar.jdo.model.Square")
    private List<Shape> shapes = new ArrayList<>();

    @Persistent
    @Extension(
            vendorName = "datanucleus",
            key = "implementation-classes",
            value = "io.mortar.jdo.model.Circle,io.mortar.jdo.model.Square")
    private Object anything;

    @Persistent
    @Element(embedded = "true")
    private List<Address> places = new ArrayList<>();

    @Persistent
    @Value(embedded = "true")
    private Map<String, Address> placesByName = new LinkedHashMap<>();

    @Persistent
    @Key(embedded = "true")
    private Map<Address, Square> squares = new HashMap<>();

    @Persistent
    @Order(extensions = @Extension(vendorName = "datanucleus", key = "list-ordering", value = "side ASC"))
    private List<Square> sorted = new ArrayList<>();

    public Shape getMain() {
        return main;
    }

    public void setMain(Shape main) {
        this.main = main;
    }

    public List<Shape> getShapes() {
        return shapes;
    }

    public Object getAnything() {
        return anything;
    }

    public void setAnything(Object anything) {
        this.anything = anything;
    }

    public List<Address> getPlaces() {
        return places;
    }

    public Map<String, Address> getPlacesByName() {
        return placesByName;
    }

    public List<Square> getSorted() {
        return sorted;
    }

    public Map<Address, Square> getSquares() {
        return squares;
    }
}
