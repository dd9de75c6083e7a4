package io.mortar;

import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A transaction with the names of objects: paths, and the entries of sets and directories. It is a part of
 * {@link Transaction}, which has these methods.
 */
abstract class NameTransaction {
    final NativeHandle handle;
    /** The temporary identifiers that it has given out. */
    final Set<Oid> created = ConcurrentHashMap.newKeySet();

    NameTransaction(NativeHandle handle) {
        this.handle = handle;
    }

    /** Runs an operation that creates an object under a temporary identifier. */
    final Oid noteCreated(Operation operation, MessageWriter request) {
        Oid oid = handle.call(operation, request, MessageReader::oid);
        created.add(oid);
        return oid;
    }

    // ------------------------------------------------------------------------------------------ paths

    /**
     * Returns the root directory of the space. It exists without having been created, and cannot be deleted.
     *
     * @return the root directory
     */
    public Oid root() {
        return handle.call(Operation.T_ROOT, null, MessageReader::oid);
    }

    /**
     * Finds the object that a path is bound to.
     *
     * @param path the path; a {@code /} at its beginning means nothing
     * @return the object, if the path is bound; the root directory for an empty path
     * @throws InvalidRequestException for an invalid path
     */
    public Optional<Oid> resolve(String path) {
        return handle.call(
                Operation.T_RESOLVE, new MessageWriter().string(path), reply -> reply.maybe(MessageReader::oid));
    }

    /**
     * Binds a path to an object. Missing parent directories are made. An earlier binding is replaced, unless it is to a
     * directory.
     *
     * @param path the path
     * @param target the object, which this transaction may have created
     * @throws AlreadyExistsException if the path is that of another directory
     * @throws InvalidRequestException for an invalid path, for one below an object that is not a directory, and for a
     *     directory, which has one name only: {@link #rename}
     */
    public void bind(String path, Oid target) {
        handle.call(Operation.T_BIND, new MessageWriter().string(path).oid(target));
    }

    /**
     * Removes a path. The object stays.
     *
     * @param path the path
     * @return whether the path was bound
     * @throws InvalidRequestException for a directory: {@link #removeDirectory}
     */
    public boolean unbind(String path) {
        return handle.call(Operation.T_UNBIND, new MessageWriter().string(path), MessageReader::bool);
    }

    /**
     * Binds the object of one path to another path instead. A directory is moved with everything below it.
     *
     * @param from the path
     * @param to the new path
     * @throws NotFoundException if {@code from}, or the parent directory of {@code to}, is not bound
     * @throws AlreadyExistsException if {@code to} is bound
     * @throws InvalidRequestException if a directory would be moved below itself
     */
    public void rename(String from, String to) {
        handle.call(Operation.T_RENAME, new MessageWriter().string(from).string(to));
    }

    /**
     * Creates a directory, and its missing parents.
     *
     * @param path the path
     * @return the temporary identifier of the directory
     * @throws AlreadyExistsException if the path is bound
     */
    public Oid createDirectory(String path) {
        return noteCreated(Operation.T_CREATE_DIRECTORY, new MessageWriter().string(path));
    }

    /**
     * Removes an empty directory, and deletes it.
     *
     * @param path the path
     * @throws NotFoundException if the path is not bound
     * @throws InvalidRequestException if it is not a directory, or has entries
     */
    public void removeDirectory(String path) {
        handle.call(Operation.T_REMOVE_DIRECTORY, new MessageWriter().string(path));
    }

    /**
     * Lists names of a directory, in the order of their bytes.
     *
     * @param path the path of the directory
     * @param after the name after which the list begins; null for the beginning
     * @param limit the maximum number of names
     * @return the names
     * @throws NotFoundException if the path is not bound
     * @throws InvalidRequestException if it is not a directory
     */
    public List<DirectoryEntry> list(String path, String after, int limit) {
        MessageWriter request = new MessageWriter().string(path).range(after, MessageWriter::string, limit);
        return handle.call(Operation.T_LIST, request, reply -> reply.list(DirectoryEntry::read));
    }

    // ------------------------------------------------------------------------------------------ collections

    /**
     * Adds a member to a set. It may be a member already.
     *
     * @param collection the set, which this transaction may have created
     * @param member the member, whose identifier is permanent
     * @throws NotFoundException if there is no such set
     * @throws InvalidRequestException if the object is not a set, or the identifier of the member is temporary
     */
    public void addMember(Oid collection, Oid member) {
        handle.call(Operation.T_ADD_MEMBER, new MessageWriter().oid(collection).oid(member));
    }

    /**
     * Removes a member from a set.
     *
     * @param collection the set
     * @param member the member
     * @return whether it was a member
     * @throws NotFoundException if there is no such set
     */
    public boolean removeMember(Oid collection, Oid member) {
        return handle.call(
                Operation.T_REMOVE_MEMBER, new MessageWriter().oid(collection).oid(member), MessageReader::bool);
    }

    /**
     * Returns whether an object is a member of a set.
     *
     * @param collection the set
     * @param member the object
     * @return whether it is a member
     */
    public boolean contains(Oid collection, Oid member) {
        return handle.call(
                Operation.T_CONTAINS, new MessageWriter().oid(collection).oid(member), MessageReader::bool);
    }

    /**
     * Lists members of a set, in the order of identifiers.
     *
     * @param collection the set
     * @param after the member after which the list begins; null for the beginning
     * @param limit the maximum number of members
     * @return the members
     */
    public List<Oid> members(Oid collection, Oid after, int limit) {
        MessageWriter request = new MessageWriter().oid(collection).range(after, MessageWriter::oid, limit);
        return handle.call(Operation.T_MEMBERS, request, reply -> reply.list(MessageReader::oid));
    }

    /**
     * Finds the object that a name in a directory is bound to.
     *
     * @param directory the directory
     * @param name the name: one component of a path
     * @return the object, if the name is bound
     * @throws InvalidRequestException for a name that is not one component of a path
     */
    public Optional<Oid> entry(Oid directory, String name) {
        MessageWriter request = new MessageWriter().oid(directory).string(name);
        return handle.call(Operation.T_ENTRY, request, reply -> reply.maybe(MessageReader::oid));
    }

    /**
     * Binds a name in a directory to an object. An earlier binding is replaced, and not read: transactions that put the
     * same name do not conflict.
     *
     * @param directory the directory
     * @param name the name: one component of a path
     * @param target the object, which this transaction may have created
     * @throws NotFoundException if there is no such directory
     * @throws InvalidRequestException for a name that is not one component of a path, and for a directory, which has
     *     one name only: {@link #rename}
     */
    public void putEntry(Oid directory, String name, Oid target) {
        handle.call(
                Operation.T_PUT_ENTRY,
                new MessageWriter().oid(directory).string(name).oid(target));
    }

    /**
     * Binds a free name in a directory to an object.
     *
     * @param directory the directory
     * @param name the name: one component of a path
     * @param target the object, which this transaction may have created
     * @throws AlreadyExistsException if the name is bound
     * @throws NotFoundException if there is no such directory
     * @throws InvalidRequestException as {@link #putEntry}
     */
    public void addEntry(Oid directory, String name, Oid target) {
        handle.call(
                Operation.T_ADD_ENTRY,
                new MessageWriter().oid(directory).string(name).oid(target));
    }

    /**
     * Removes a name from a directory. The object stays.
     *
     * @param directory the directory
     * @param name the name: one component of a path
     * @return whether the name was bound
     */
    public boolean removeEntry(Oid directory, String name) {
        return handle.call(
                Operation.T_REMOVE_ENTRY, new MessageWriter().oid(directory).string(name), MessageReader::bool);
    }

    /**
     * Lists names of a directory, in the order of their bytes.
     *
     * @param directory the directory
     * @param after the name after which the list begins; null for the beginning
     * @param prefix only names that begin with it; empty for all
     * @param limit the maximum number of names
     * @return the names
     */
    public List<DirectoryEntry> entries(Oid directory, String after, String prefix, int limit) {
        MessageWriter request = new MessageWriter()
                .oid(directory)
                .range(after, MessageWriter::string, limit)
                .string(prefix);
        return handle.call(Operation.T_ENTRIES, request, reply -> reply.list(DirectoryEntry::read));
    }

    /**
     * Counts the entries of a set or a directory. The count is read: a transaction that adds or removes an entry
     * meanwhile conflicts with this one.
     *
     * @param collection the set or the directory
     * @return the number of entries
     */
    public long count(Oid collection) {
        return handle.call(Operation.T_COUNT, new MessageWriter().oid(collection), MessageReader::u64);
    }
}
