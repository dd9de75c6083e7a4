package io.mortar.jdo.mapping;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractClassMetaData;

/** The mappings of the members of a Java class, by position and by name. */
public final class MemberMappings {
    private final AbstractClassMetaData metadata;
    /** By position; null for members that are not persistent. */
    private final List<MemberMapping> byPosition;

    private final Map<String, MemberMapping> byName = new HashMap<>();
    private final int[] positions;

    MemberMappings(AbstractClassMetaData metadata, List<MemberMapping> byPosition) {
        this.metadata = metadata;
        this.byPosition = new ArrayList<>(byPosition);
        for (MemberMapping mapping : byPosition) {
            if (mapping != null) {
                byName.put(mapping.member().getName(), mapping);
            }
        }
        positions = Arrays.stream(metadata.getAllMemberPositions())
                .filter(position -> byPosition.get(position) != null)
                .toArray();
    }

    /** The metadata of the class. */
    public AbstractClassMetaData metadata() {
        return metadata;
    }

    /** The positions of the persistent members. */
    public int[] positions() {
        return positions.clone();
    }

    /** The mapping of a member, or null if the member is not persistent. */
    public MemberMapping at(int position) {
        return byPosition.get(position);
    }

    /** The mapping of the member with a name, or null. */
    public MemberMapping named(String name) {
        return byName.get(name);
    }

    /** The mapping of the member at the end of a path, with dots after embedded objects; null if there is none. */
    public MemberMapping atEnd(String path) {
        MemberMappings members = this;
        MemberMapping mapping = null;
        for (String name : path.split("\\.")) {
            mapping = members == null ? null : members.named(name);
            members = mapping instanceof EmbeddedMapping embedded ? embedded.members() : null;
        }
        return mapping;
    }

    List<MemberMapping> all() {
        return byPosition;
    }

    /** Passes the columns of all members. */
    public void forEachColumn(Consumer<Column> action) {
        for (MemberMapping mapping : byPosition) {
            if (mapping != null) {
                mapping.forEachColumn(action);
            }
        }
    }
}
