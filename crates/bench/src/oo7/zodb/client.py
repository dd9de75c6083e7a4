"""OO7 on ZODB with ZEO, for script/bench oo7.

client.py SOCKET load: reads the modules from standard input, as JSON, and stores them.
client.py SOCKET run:  reads an operation from there, runs it in several transactions of one new client, and prints for each
                       its seconds and what it has counted, as JSON.
"""

import json
import sys
import time

import transaction
import ZEO
import ZODB
from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree
from persistent import Persistent

# The defaults are 20 MB for the cache file and 400 objects in memory. With these, nothing is evicted.
CACHE_FILE_BYTES = 1 << 30
CACHED_OBJECTS = 10_000_000
# Objects of one transaction of the load, about.
PORTION = 2_000
ID_BITS = 32


class Stored(Persistent):
    def __init__(self, **members):
        self.__dict__.update(members)


class Module(Stored):
    pass


class Manual(Stored):
    pass


class ComplexAssembly(Stored):
    pass


class BaseAssembly(Stored):
    pass


class CompositePart(Stored):
    pass


class Document(Stored):
    pass


class AtomicPart(Stored):
    pass


class Connection(Stored):
    pass


# ------------------------------------------------------------------------------------------------- loading


def new_database(root):
    root["modules"] = LOBTree()
    root["base_assemblies"] = LOBTree()
    root["documents"] = OOBTree()  # by title
    root["atomic_parts"] = LOBTree()  # by identifier
    root["build_dates"] = LOBTree()  # atomic parts by build date and identifier


def date_key(date, id=0):
    return date << ID_BITS | id


def load(root, database):
    new_database(root)
    transaction.commit()
    for data in database["modules"]:
        parts = []
        for part in data["composite_parts"]:
            parts.append(new_composite_part(root, part, database["document_bytes"]))
            objects = len(part["parts"]) * (1 + len(part["parts"][0]["targets"]))
            if len(parts) % max(1, PORTION // objects) == 0:
                transaction.commit()
        new_module(root, data, parts, database["manual_bytes"])
        transaction.commit()


def new_composite_part(root, data, document_bytes):
    part = CompositePart(id=data["id"], kind=data["kind"], build_date=data["build_date"], used_in=[])
    part.parts = [new_atomic_part(root, atomic, part) for atomic in data["parts"]]
    part.root_part = part.parts[0]
    for source, atomic in zip(part.parts, data["parts"]):
        for number, index in enumerate(atomic["targets"]):
            target = part.parts[index]
            id = (source.id - 1) * len(atomic["targets"]) + number + 1
            length = abs(source.x - target.x) + 1
            connection = Connection(id=id, kind=source.kind, length=length, source=source, target=target)
            source.outgoing.append(connection)
            target.incoming.append(connection)
    text = repeat("I am the documentation for composite part #%08d.\n" % part.id, document_bytes)
    document = Document(id=part.id, title=data["title"], text=text, part=part)
    part.documentation = root["documents"][document.title] = document
    return part


def new_atomic_part(root, data, part_of):
    names = ["id", "kind", "build_date", "x", "y", "document_id"]
    members = {name: data[name] for name in names}
    part = AtomicPart(part_of=part_of, outgoing=[], incoming=[], **members)
    root["atomic_parts"][part.id] = part
    root["build_dates"][date_key(part.build_date, part.id)] = part
    return part


def new_module(root, data, parts, manual_bytes):
    number = data["number"]
    text = repeat("I am the manual for module #%08d.\n" % number, manual_bytes)
    manual = Manual(id=number, title="Manual for module #%08d" % number, text=text)
    module = Module(id=number, kind="type000", manual=manual)
    manual.module = root["modules"][number] = module
    assemblies = []
    for each in data["assemblies"]:
        above = None if each["parent"] is None else assemblies[each["parent"]]
        members = dict(id=each["id"], kind=each["kind"], build_date=each["build_date"], module=module, super_assembly=above)
        if each["components"] is None:
            assembly = ComplexAssembly(sub_assemblies=[], base_assemblies=[], **members)
            if above is not None:
                above.sub_assemblies.append(assembly)
        else:
            assembly = BaseAssembly(components=[parts[index] for index in each["components"]], **members)
            above.base_assemblies.append(assembly)
            root["base_assemblies"][assembly.id] = assembly
            for part in assembly.components:
                part.used_in.append(assembly)
                part._p_changed = True
        assemblies.append(assembly)
    module.design_root = assemblies[0]


def repeat(line, length):
    return (line * (length // len(line) + 1))[:length]


# ------------------------------------------------------------------------------------------------- traversals


class Traversal:
    """T1 to T3 and T6. `updates` are those of the root part of each graph, and those of each other part."""

    def __init__(self, root, all_parts, updates, of_first_only, field):
        self.root = root
        self.all_parts = all_parts
        self.updates = updates
        self.of_first_only = of_first_only
        self.field = field
        self.visited = self.updated = 0

    def run(self, module):
        assemblies = [self.root["modules"][module].design_root]
        while assemblies:
            assembly = assemblies.pop()
            for base in assembly.base_assemblies:
                for part in base.components:
                    self.visit_composite_part(part)
            assemblies.extend(reversed(assembly.sub_assemblies))
        return self.visited, self.updated

    def visit_composite_part(self, composite_part):
        of_root, of_others = self.updates if self.visited == 0 or not self.of_first_only else (0, 0)
        root = part = composite_part.root_part
        visited, connections = set(), []
        while True:
            # Objects of ZODB are hashed by their addresses.
            if part not in visited:
                visited.add(part)
                self.visited += visit(part)
                if self.all_parts:
                    connections.extend(reversed(part.outgoing))
                for _ in range(of_root if part is root else of_others):
                    self.update(part)
            if not connections:
                return
            part = connections.pop().target

    def update(self, part):
        self.updated += 1
        if self.field == "position":
            part.x += 1
            part.y += 1
            return
        del self.root["build_dates"][date_key(part.build_date, part.id)]
        part.build_date += 1
        self.root["build_dates"][date_key(part.build_date, part.id)] = part


def visit(part):
    return int(part.x + part.y >= 0)


# ------------------------------------------------------------------------------------------------- queries


def look_up(root, ids):
    return sum(visit(root["atomic_parts"][id]) for id in ids)


def parts_since(root, date):
    return sum(visit(part) for part in root["build_dates"].values(date_key(date)))


def users_of_documents(root, titles):
    documents = (root["documents"][title] for title in titles)
    return sum(base.build_date > 0 for document in documents for base in document.part.used_in)


def outdated_assemblies(root):
    def uses_later_part(base):
        return any(part.build_date > base.build_date for part in base.components)

    return [base for base in root["base_assemblies"].values() if uses_later_part(base)]


def outdated_with_ancestors(root):
    bases = outdated_assemblies(root)
    found = set()
    for base in bases:
        above = base.super_assembly
        while above is not None and above not in found:
            found.add(above)
            above = above.super_assembly
    return len(bases) + len(found)


def join(root):
    documents = {document.id for document in root["documents"].values()}
    return sum(part.document_id in documents for part in root["atomic_parts"].values())


QUERIES = {
    "lookups": lambda root, task: look_up(root, task["ids"]),
    "build_dates": lambda root, task: parts_since(root, task["date"]),
    "documents": lambda root, task: users_of_documents(root, task["titles"]),
    "make": lambda root, task: len(outdated_assemblies(root)),
    "multi_level_make": lambda root, task: outdated_with_ancestors(root),
    "join": lambda root, task: join(root),
}


def run_once(root, task):
    """Runs an operation in a transaction. Returns the objects that it has visited, and the updates."""
    if task["operation"] == "traversal":
        names = ["all_parts", "updates", "of_first_only", "field"]
        traversal = Traversal(root, **{name: task[name] for name in names})
        counts = traversal.run(task["module"])
    else:
        counts = QUERIES[task["operation"]](root, task), 0
    transaction.commit()
    return counts


def run(root, task):
    runs = []
    for _ in range(task["runs"]):
        # A new transaction gets what others have committed.
        transaction.begin()
        begun = time.perf_counter()
        visited, updated = run_once(root, task)
        runs.append({"seconds": time.perf_counter() - begun, "visited": visited, "updated": updated})
    print(json.dumps(runs))


def main():
    socket, action = sys.argv[1:]
    storage = ZEO.client(socket, cache_size=CACHE_FILE_BYTES)
    database = ZODB.DB(storage, cache_size=CACHED_OBJECTS)
    connection = database.open()
    {"load": load, "run": run}[action](connection.root(), json.load(sys.stdin))
    connection.close()
    database.close()


# Stored objects name the module of their class, which is `__main__`: so this file is always run as a program.
if __name__ == "__main__":
    main()
