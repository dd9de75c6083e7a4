package io.mortar.jdo;

import java.beans.Introspector;
import java.io.Serializable;
import java.lang.annotation.Annotation;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.FieldPersistenceModifier;
import org.datanucleus.metadata.annotations.AnnotationObject;
import org.datanucleus.metadata.annotations.ClassAnnotationHandler;
import org.datanucleus.metadata.annotations.MemberAnnotationHandler;

/**
 * Makes members of entities persistent whose values can be serialized: Jakarta Persistence 3.1, section 2.8.
 * DataNucleus stores them only if they have {@code @Basic}.
 */
public final class SerializableMembers implements ClassAnnotationHandler, MemberAnnotationHandler {
    private static final Set<String> PERSISTENT_TYPES = Set.of("Entity", "Embeddable", "MappedSuperclass");
    private static final Set<String> OF_LIBRARIES = Set.of("java.", "javax.", "jakarta.", "org.datanucleus.");
    private static final String JAKARTA = "jakarta.persistence";
    private static final String DATANUCLEUS = "org.datanucleus";

    /** Adds the members without annotations to the metadata of a class. */
    @Override
    public void processClassAnnotation(
            AnnotationObject annotation, AbstractClassMetaData type, ClassLoaderResolver loaders) {
        Class<?> javaType = loaders.classForName(type.getFullClassName());
        if (hasPropertyAccess(type, javaType)) {
            getters(javaType)
                    .filter(each ->
                            !isAnnotated(each) && isSerializable(each.getGenericReturnType(), each.getReturnType()))
                    .map(SerializableMembers::property)
                    .filter(name -> isEnhancedWith(javaType, name) && type.getMetaDataForMember(name) == null)
                    .forEach(name -> makePersistent(type.newPropertyMetaData(name)));
        } else {
            Arrays.stream(javaType.getDeclaredFields())
                    .filter(each -> isStored(each.getModifiers())
                            && !each.isSynthetic()
                            && !isAnnotated(each)
                            && isSerializable(each.getGenericType(), each.getType()))
                    .map(Field::getName)
                    .filter(name -> isEnhancedWith(javaType, name) && type.getMetaDataForMember(name) == null)
                    .forEach(name -> makePersistent(type.newFieldMetaData(name)));
        }
    }

    /** Makes a member with {@code @Column} persistent. */
    @Override
    public void processMemberAnnotation(
            AnnotationObject annotation, AbstractMemberMetaData member, ClassLoaderResolver loaders) {
        if (member.getPersistenceModifier() != FieldPersistenceModifier.DEFAULT) {
            return;
        }
        AbstractClassMetaData type = member.getAbstractClassMetaData();
        Class<?> javaType = loaders.classForName(type.getFullClassName());
        boolean isField = Arrays.stream(javaType.getDeclaredFields())
                .anyMatch(each -> each.getName().equals(member.getName())
                        && isStored(each.getModifiers())
                        && isSerializable(each.getGenericType(), each.getType()));
        boolean isProperty = getters(javaType)
                .anyMatch(each -> property(each).equals(member.getName())
                        && isSerializable(each.getGenericReturnType(), each.getReturnType()));
        if ((isField || isProperty) && isEnhancedWith(javaType, member.getName())) {
            makePersistent(member);
        }
    }

    private static void makePersistent(AbstractMemberMetaData member) {
        member.setPersistenceModifier(FieldPersistenceModifier.PERSISTENT);
        member.setDefaultFetchGroup(true);
    }

    private static boolean hasPropertyAccess(AbstractClassMetaData type, Class<?> javaType) {
        return type.getAccessViaField() != null
                ? !type.getAccessViaField()
                : getters(javaType).anyMatch(SerializableMembers::isAnnotated);
    }

    private static Stream<Method> getters(Class<?> type) {
        return Arrays.stream(type.getDeclaredMethods())
                .filter(each -> each.getParameterCount() == 0
                        && !each.isBridge()
                        && !Modifier.isStatic(each.getModifiers())
                        && each.getName().matches("get\\p{Lu}.*"));
    }

    private static String property(Method getter) {
        return Introspector.decapitalize(getter.getName().substring("get".length()));
    }

    private static boolean isStored(int modifiers) {
        return (modifiers & (Modifier.STATIC | Modifier.TRANSIENT | Modifier.FINAL)) == 0;
    }

    private static boolean isAnnotated(AnnotatedElement member) {
        return Arrays.stream(member.getAnnotations())
                .map(each -> each.annotationType().getName())
                .anyMatch(name -> name.startsWith(JAKARTA) || name.startsWith(DATANUCLEUS));
    }

    /** Whether values of a type, or of the elements of an array, can only be stored in serialized form. */
    private static boolean isSerializable(Type generic, Class<?> type) {
        Class<?> element = type.isArray() ? type.getComponentType() : type;
        return Serializable.class.isAssignableFrom(element)
                && !(generic instanceof TypeVariable)
                && !isKnown(element)
                && Arrays.stream(element.getAnnotations())
                        .map(Annotation::annotationType)
                        .noneMatch(each -> each.getPackageName().equals(JAKARTA)
                                && PERSISTENT_TYPES.contains(each.getSimpleName()));
    }

    /** Whether a type is stored in another form, or is a type of Java, of which DataNucleus decides that. */
    private static boolean isKnown(Class<?> type) {
        return type.isEnum()
                || type == LargeObject.class
                || Collection.class.isAssignableFrom(type)
                || Map.class.isAssignableFrom(type)
                || type != Serializable.class && OF_LIBRARIES.stream().anyMatch(type.getName()::startsWith);
    }

    /**
     * Whether a class can store a member: it was enhanced with it, or is not enhanced yet. An enhancer without the
     * plugin in its class path leaves the member out.
     */
    private static boolean isEnhancedWith(Class<?> type, String member) {
        if (!Persistable.class.isAssignableFrom(type)) {
            return true;
        }
        try {
            Field names = type.getDeclaredField("dnFieldNames");
            names.setAccessible(true);
            return Arrays.asList((String[]) names.get(null)).contains(member);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(type.getName() + " was enhanced in an unknown way", error);
        }
    }
}
