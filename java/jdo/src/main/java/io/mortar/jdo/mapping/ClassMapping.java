package io.mortar.jdo.mapping;

import java.util.List;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.InheritanceMetaData;
import org.datanucleus.metadata.InheritanceStrategy;

/**
 * How a persistent Java class is stored: as the Mortar class of the same name, which extends the class of the Java
 * class's superclass.
 */
public final class ClassMapping {
    private static final int UNKNOWN = -1;

    private final AbstractClassMetaData metadata;
    private final ClassMapping parent;
    private final MemberMappings members;
    private final List<Column> ownColumns;
    private final Column version;
    private final Visibility visibility;
    private volatile int number = UNKNOWN;

    /**
     * @param parent the mapping of the superclass, or null
     * @param ownColumns the columns that the class adds to those of its parent
     * @param version the column with the version of objects without a member for it; otherwise null
     */
    ClassMapping(
            AbstractClassMetaData metadata,
            ClassMapping parent,
            MemberMappings members,
            List<Column> ownColumns,
            Column version,
            Visibility visibility) {
        this.metadata = metadata;
        this.parent = parent;
        this.members = members;
        this.ownColumns = List.copyOf(ownColumns);
        this.version = version;
        this.visibility = visibility;
    }

    /** The name of the Java class and of the Mortar class. */
    public String name() {
        return metadata.getFullClassName();
    }

    public AbstractClassMetaData metadata() {
        return metadata;
    }

    public ClassMapping parent() {
        return parent;
    }

    /**
     * The nearest superclass with objects of its own: not one that only has members for others. Null if there is none.
     */
    ClassMapping entityAbove() {
        ClassMapping above = parent;
        while (above != null && !above.hasObjects()) {
            above = above.parent;
        }
        return above;
    }

    /**
     * Whether objects can be of this class itself: it is not a mapped superclass, and not stored with its subclasses
     * only.
     */
    public boolean hasObjects() {
        return hasObjects(metadata);
    }

    static boolean hasObjects(AbstractClassMetaData metadata) {
        InheritanceMetaData inheritance = metadata.getInheritanceMetaData();
        return !metadata.isMappedSuperclass()
                && (inheritance == null || inheritance.getStrategy() != InheritanceStrategy.SUBCLASS_TABLE);
    }

    /** The number of members of the superclasses that have indexes of their own. */
    int membersIndexedAbove() {
        ClassMapping above = entityAbove();
        return above == null ? 0 : above.members.all().size();
    }

    /** Whether the application identity is unique among the objects of this class, and not of a class above. */
    boolean declaresIdentity() {
        return hasIdentity() && withIdentity() == this;
    }

    /** The topmost class among whose objects the application identity is unique. */
    public ClassMapping withIdentity() {
        ClassMapping above = entityAbove();
        return above == null || !above.hasIdentity() ? this : above.withIdentity();
    }

    private boolean hasIdentity() {
        int[] key = metadata.getPKMemberPositions();
        return key != null && key.length > 0;
    }

    /** Whether this is a class or extends it. */
    public boolean isA(ClassMapping ancestor) {
        return this == ancestor || parent != null && parent.isA(ancestor);
    }

    public MemberMappings members() {
        return members;
    }

    List<Column> ownColumns() {
        return ownColumns;
    }

    /** The column with the version, or null if the class has no version, or a member for it. */
    public Column version() {
        return version;
    }

    /** Which objects of the class a persistence context finds. */
    public Visibility visibility() {
        return visibility;
    }

    /** The number of the class in identifiers. */
    public int number() {
        if (number == UNKNOWN) {
            throw new IllegalStateException(name() + " is not in the catalogue yet");
        }
        return number;
    }

    void setNumber(int number) {
        this.number = number;
    }

    @Override
    public String toString() {
        return name();
    }
}
