package io.mortar.jdo.query;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import org.datanucleus.store.query.expression.ArrayExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;

/** Translates tests whether a collection, a map or a list of values has a value, or has none. */
final class Memberships {
    private final Operands operands;
    private final Comparisons comparisons;
    private final boolean isJpql;

    Memberships(Operands operands, Comparisons comparisons, boolean isJpql) {
        this.operands = operands;
        this.comparisons = comparisons;
        this.isJpql = isJpql;
    }

    /** Whether a collection has no elements, or whether it has some. */
    String empty(Term collection, boolean negated) {
        if (!(collection instanceof Term.Container container) || container.isMap()) {
            throw new Untranslatable("the size of the collection is not stored");
        }
        return comparisons.joinedInner(container, negated ? hasElements(container) : '!' + hasElements(container));
    }

    private static String hasElements(Term container) {
        return container.text() + ".any(e_ => " + Conditions.ALWAYS + ')';
    }

    /** Whether a collection has an element. */
    String contains(Term collection, Term value, boolean negated) {
        if (isJpql && value.isNull()) {
            // It is not known whether null is an element, unless there is none.
            return negated ? empty(collection, false) : Conditions.NEVER;
        }
        String test = collection instanceof Term.Inverse inverse ? isOwner(inverse, value) : isIn(value, collection);
        return membership(collection, value, test, negated);
    }

    /** A test whether a collection has an element. In JPQL it is not known whether it has null, unless it is empty. */
    private String membership(Term collection, Term element, String test, boolean negated) {
        if (!negated) {
            return comparisons.joinedInner(collection, test);
        }
        boolean mayBeNull = isJpql && !element.isConstant() && !element.isCandidate();
        String notIn = (mayBeNull ? element.text() + " != null && " : "") + "!(" + test + ')';
        // Behind a reference that is null there is no value.
        boolean isKnownIfEmpty = mayBeNull
                && element.references().isEmpty()
                && collection instanceof Term.Container container
                && !container.isMap();
        return comparisons.joinedInner(
                collection, isKnownIfEmpty ? '(' + notIn + " || !" + hasElements(collection) + ')' : notIn);
    }

    /** A test whether a list or a set has a value. In JDOQL it may have null, unless its elements are objects. */
    private String isIn(Term value, Term collection) {
        if (!(collection instanceof Term.Container container) || container.isMap()) {
            throw new Untranslatable("the collection is not a list or a set");
        }
        boolean mayHaveNull = container.mapping().mayHaveNull();
        String hasNull = mayHaveNull ? container.text() + ".any(e_ => e_ == null)" : Conditions.NEVER;
        if (value.isNull()) {
            return hasNull;
        }
        String test = among(value, operands.scope().element(container.mapping(), "e_"), container);
        if (isJpql || value.isConstant() || !value.isNullable()) {
            return test;
        }
        Comparisons.requireNoZero(value);
        return mayHaveNull ? '(' + test + " || " + value.text() + " == null && " + hasNull + ')' : test;
    }

    /** A test whether a container has a value among its elements or keys, which have the form of a term. */
    private String among(Term value, Term form, Term.Container container) {
        if (!value.isConstant() && !Comparisons.haveOneForm(value, form)) {
            throw new Untranslatable("the stored values of a member and a container cannot be compared");
        }
        String text = value.isConstant() ? operands.parameters().text(value.constant(), form) : value.text();
        return text + " in " + container.text();
    }

    /** A constant object is in an inverse collection if it refers to the owner of the collection. */
    private String isOwner(Term.Inverse collection, Term value) {
        if (!value.isConstant() || value.constant() == null) {
            throw new Untranslatable("the elements of the collection are found by their references to its owner");
        }
        Object owner = operands.parameters()
                .member(value.constant(), collection.mapping().elementMember());
        if (owner instanceof Collection<?> owners) {
            return collection.owner().text() + " in " + operands.parameters().listText(owners, collection.owner());
        }
        return owner == null
                ? Conditions.NEVER
                : collection.owner().text() + " == " + operands.parameters().text(owner, collection.owner());
    }

    /** Whether a map has a key. */
    String containsKey(InvokeExpression invoke, boolean negated) {
        Term map = operands.term(invoke.getLeft());
        Term key = operands.term(invoke.getArguments().get(0));
        if (!(map instanceof Term.Container container) || !container.isMap()) {
            throw new Untranslatable("the map is not stored as one");
        }
        if (!isJpql) {
            Comparisons.requireNoZero(key);
        }
        return membership(map, key, among(key, operands.scope().key(container.mapping(), "e_"), container), negated);
    }

    /** A test whether a value is one of a list of constants, or one of several expressions. */
    String in(Expression element, Expression list, boolean negated) {
        Term value = operands.term(element);
        if (value.isConstant()) {
            throw new Untranslatable("two constants are compared");
        }
        List<Object> constants = new ArrayList<>();
        if (list instanceof ArrayExpression array) {
            for (int i = 0; i < array.getArraySize(); i++) {
                Term each = operands.values(array.getElement(i));
                if (!each.isConstant()) {
                    throw new Untranslatable("a list has elements that are not constant");
                }
                boolean isList = each.constant() instanceof Collection;
                constants.addAll(
                        isList ? Parameters.elements(each.constant()) : Collections.singleton(each.constant()));
            }
        } else {
            Term each = operands.values(list);
            if (!each.isConstant()) {
                if (list instanceof PrimaryExpression) {
                    return membership(each, value, isIn(value, each), negated);
                }
                throw new Untranslatable("a list is not constant");
            }
            if (each.constant() == null) {
                return Conditions.NEVER;
            }
            boolean isOne = !(each.constant() instanceof Collection)
                    && !each.constant().getClass().isArray();
            constants.addAll(isOne ? List.of(each.constant()) : Parameters.elements(each.constant()));
        }
        // JPQL does not know whether a value differs from null.
        if (negated && isJpql && constants.contains(null)) {
            return Conditions.NEVER;
        }
        String test = value.text() + " in " + operands.parameters().listText(constants, value);
        if (isJpql) {
            return Comparisons.guarded(test, negated, value);
        }
        if (constants.contains(null) != negated) {
            Comparisons.requireNoZero(value);
        }
        boolean hasNull = constants.contains(null) && value.isNullable();
        String found = hasNull ? test + " || " + value.text() + " == null" : test;
        return negated ? "!(" + found + ')' : hasNull ? '(' + found + ')' : found;
    }
}
