package io.mortar;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Tests that call the native library. Without a library for this platform they are skipped; if the system property
 * {@code mortar.library} names one, they are never skipped.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresLibrary.Condition.class)
@interface RequiresLibrary {
    /** Whether the library can be loaded. */
    final class Condition implements ExecutionCondition {
        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
            try {
                NativeLibrary.load();
                return ConditionEvaluationResult.enabled("the native library is loaded");
            } catch (UnsatisfiedLinkError missing) {
                return System.getProperty(NativeLibrary.PROPERTY) == null
                        ? ConditionEvaluationResult.disabled(missing.getMessage())
                        : ConditionEvaluationResult.enabled("the library that was given cannot be loaded");
            }
        }
    }
}
