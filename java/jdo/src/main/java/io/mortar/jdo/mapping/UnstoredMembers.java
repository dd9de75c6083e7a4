package io.mortar.jdo.mapping;

import java.io.IOException;
import java.io.InputStream;
import java.io.StringReader;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Member;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Set;
import javax.xml.parsers.DocumentBuilder;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.parsers.ParserConfigurationException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ClassMetaData;
import org.datanucleus.metadata.FieldPersistenceModifier;
import org.datanucleus.metadata.FileMetaData;
import org.datanucleus.metadata.MetaDataFileType;
import org.datanucleus.util.NucleusLogger;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.InputSource;
import org.xml.sax.SAXException;

/**
 * Finds members that DataNucleus does not store although neither the program nor the metadata says so.
 *
 * <p>DataNucleus decides by the type of a member without annotations whether it is persistent, and the enhancer has
 * given the others no code that the store could use. Their values would be lost without a word.
 *
 * <p>JDO 3.2 says that such members are not persistent, and programs have loggers, locks and caches in them: a warning
 * names them. Jakarta Persistence 3.1 stores all that is not declared transient, so its classes are refused.
 */
final class UnstoredMembers {
    private static final Set<String> NOT_STORED = Set.of("none", "transactional");
    private static final Set<MetaDataFileType> XML_FILES =
            Set.of(MetaDataFileType.JDO_FILE, MetaDataFileType.JDO_ORM_FILE, MetaDataFileType.JPA_MAPPING_FILE);
    /** The start of the name that DataNucleus gives metadata which the program has made. */
    private static final String MADE_BY_PROGRAM = "User_Metadata_";

    private UnstoredMembers() {}

    /** Fails, or logs a warning in JDO, if a class has a member that would silently not be stored. */
    static void report(AbstractClassMetaData type, boolean isJakarta) {
        if (type.isImplementationOfPersistentDefinition()) {
            return;
        }
        AbstractMemberMetaData member;
        for (int position = 0; (member = type.getMetaDataForMemberAtRelativePosition(position)) != null; position++) {
            if (isForgotten(type, member)) {
                report(member, isJakarta);
            }
        }
        if (hasInstances(type)) {
            reportUnboundVariables(type, isJakarta);
        }
    }

    /** Members of superclasses whose types are type variables must have got a type that is stored. */
    private static void reportUnboundVariables(AbstractClassMetaData type, boolean isJakarta) {
        AbstractClassMetaData above = type.getSuperAbstractClassMetaData();
        for (; above != null; above = above.getSuperAbstractClassMetaData()) {
            AbstractMemberMetaData open;
            for (int position = 0;
                    (open = above.getMetaDataForMemberAtRelativePosition(position)) != null;
                    position++) {
                boolean isBound = type.getMetaDataForMember(open.getName()).isFieldToBePersisted();
                if (MappingBuilder.hasOpenType(open) && !isBound && isUndeclared(above, open)) {
                    report(open, isJakarta);
                }
            }
        }
    }

    private static boolean hasInstances(AbstractClassMetaData type) {
        return ClassMapping.hasObjects(type) && !(type instanceof ClassMetaData named && named.isAbstract());
    }

    private static boolean isForgotten(AbstractClassMetaData type, AbstractMemberMetaData member) {
        boolean isReplacedBySubclasses = MappingBuilder.hasOpenType(member) && !hasInstances(type);
        return !isReplacedBySubclasses && isUndeclared(type, member);
    }

    private static boolean isUndeclared(AbstractClassMetaData type, AbstractMemberMetaData member) {
        return member.getPersistenceModifier() == FieldPersistenceModifier.NONE
                && member.getMemberRepresented() != null
                && !isExcludedInCode(member.getMemberRepresented())
                && !isExcludedInFile(type, member.getName());
    }

    private static boolean isExcludedInCode(Member member) {
        return (member.getModifiers() & (Modifier.STATIC | Modifier.TRANSIENT)) != 0
                || member.isSynthetic()
                || Arrays.stream(((AnnotatedElement) member).getAnnotations())
                        .map(annotation -> annotation.annotationType().getSimpleName())
                        .anyMatch(Set.of("Transient", "NotPersistent", "Transactional", "Persistent")::contains);
    }

    /**
     * Whether an XML file says that a member is not stored. DataNucleus keeps no difference between that and its own
     * decision.
     */
    private static boolean isExcludedInFile(AbstractClassMetaData type, String member) {
        FileMetaData file = type.getPackageMetaData() == null
                ? null
                : type.getPackageMetaData().getFileMetaData();
        if (file == null || file.getFilename() == null || !XML_FILES.contains(file.getType())) {
            return false;
        }
        if (file.getFilename().startsWith(MADE_BY_PROGRAM)) {
            // What the program has said of a member is not kept.
            return true;
        }
        NodeList elements = read(file.getFilename()).getElementsByTagName("*");
        for (int i = 0; i < elements.getLength(); i++) {
            Element element = (Element) elements.item(i);
            boolean isExcluded = element.getTagName().equals("transient")
                    || NOT_STORED.contains(element.getAttribute("persistence-modifier"));
            if (isExcluded && element.getAttribute("name").equals(member) && isIn(element, type)) {
                return true;
            }
        }
        return false;
    }

    private static boolean isIn(Element member, AbstractClassMetaData type) {
        for (var above = member.getParentNode(); above instanceof Element element; above = above.getParentNode()) {
            String name = element.getAttribute(element.hasAttribute("class") ? "class" : "name");
            if (name.equals(type.getFullClassName()) || name.equals(type.getName())) {
                return true;
            }
        }
        return false;
    }

    private static Element read(String name) {
        try {
            DocumentBuilder builder = DocumentBuilderFactory.newInstance().newDocumentBuilder();
            builder.setEntityResolver((publicId, systemId) -> new InputSource(new StringReader("")));
            URI place = name.contains(":/") ? URI.create(name) : Path.of(name).toUri();
            try (InputStream in = place.toURL().openStream()) {
                return builder.parse(in).getDocumentElement();
            }
        } catch (IOException | SAXException | ParserConfigurationException | IllegalArgumentException error) {
            throw new NucleusUserException("the metadata file " + name + " cannot be read", error);
        }
    }

    private static void report(AbstractMemberMetaData member, boolean isJakarta) {
        String what = member.getFullFieldName() + " of type " + member.getTypeName();
        if (!isJakarta) {
            String store = member.isFinal()
                    ? "; to store it, remove final and annotate it with @Persistent"
                    : "; to store it, annotate it with @Persistent";
            NucleusLogger.METADATA.warn(what + " is not persistent by default and is not stored" + store
                    + "; to silence this warning, annotate it with @NotPersistent");
            return;
        }
        throw new NucleusUserException(what + " would not be stored: "
                + (member.isFinal()
                        ? "it is final; remove that, or annotate the member with @Transient"
                        : "annotate it with @Basic, which stores it in serialized form (a Serializable type needs that only if"
                                + " the class path of the enhancer does not have mortar-jdo), @ManyToOne or @OneToOne if it is"
                                + " an entity, or @Transient"));
    }
}
