/** How Java classes and their members are stored as Mortar classes and fields. */
package io.mortar.jdo.mapping;
