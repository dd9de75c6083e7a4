package io.mortar.jdo.model;

/** An interface of persistent classes. */
public interface Shape {
    double area();
}
