/** Lists and maps of persistent objects, which notice every change. */
package io.mortar.jdo.containers;
