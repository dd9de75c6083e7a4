package io.mortar.jdo;

import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.FieldPersistenceModifier;
import org.datanucleus.metadata.annotations.AnnotationObject;
import org.datanucleus.metadata.annotations.MemberAnnotationHandler;

/**
 * Makes a member with {@code @Convert} persistent. DataNucleus ignores that annotation when it enhances classes, so
 * that a member of a type that only its converter knows would need {@code @Basic} too.
 */
public final class ConvertHandler implements MemberAnnotationHandler {
    @Override
    public void processMemberAnnotation(
            AnnotationObject annotation, AbstractMemberMetaData member, ClassLoaderResolver loaders) {
        boolean isDisabled = Boolean.TRUE.equals(annotation.getNameValueMap().get("disableConversion"));
        if (!isDisabled && member.getPersistenceModifier() == FieldPersistenceModifier.DEFAULT) {
            member.setPersistenceModifier(FieldPersistenceModifier.PERSISTENT);
        }
    }
}
