//! The operations by number: the only table that connects the two halves.
//!
//! `Operation` of the Java half has the same numbers; a test compares them. An operation belongs to the kind of what it is done with.

use model::{Error, ErrorKind, Result};

/// Defines the operations of each kind, and [`Operation`] with all of them.
macro_rules! operations {
    ($($(#[$doc:meta])* $kind:ident { $($name:ident = $code:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) enum $kind { $($name = $code,)* }
        )*

        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation { $($kind($kind),)* }

        impl Operation {
            /// # Errors
            /// [`ErrorKind::Invalid`] if no operation has this number.
            pub(crate) fn from_code(code: i32) -> Result<Self> {
                match code {
                    $($($code => Ok(Self::$kind($kind::$name)),)*)*
                    _ => Err(unknown_operation_error(code)),
                }
            }

            /// The names and numbers of all.
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, i32)] = &[$($((stringify!($name), $code),)*)*];
        }
    };
}

operations! {
    /// Of the life of a client, and without a client.
    ClientLife {
        Connect = 1,
        Open = 2,
        InMemory = 3,
        ValidateRecord = 4,
        Shutdown = 10,
    }
    /// Of a client with single objects and with transactions.
    ClientObject {
        Begin = 11,
        Attempts = 12,
        Get = 13,
        Put = 14,
        ReadLatest = 15,
        Stat = 17,
        Append = 18,
        Nodes = 37,
        Outcome = 36,
    }
    /// Of a client with paths, collections and directories.
    ClientEntry {
        Resolve = 16,
        Members = 19,
        Entries = 20,
        Entry = 39,
        NamesOf = 21,
        CollectionsOf = 22,
        Totals = 23,
    }
    /// Of a client that open a stream.
    ClientStream {
        Query = 24,
        Names = 25,
        Objects = 26,
        Events = 27,
        Writer = 28,
        Reader = 29,
        Watch = 38,
    }
    /// Of a client with the classes and indexes of its space.
    ClientSchema {
        Schema = 30,
        Define = 31,
        Evolve = 32,
        CreateIndex = 33,
        RemoveIndex = 34,
        RemoveClass = 35,
    }
    /// Of the attempts of a transaction.
    Attempt {
        Begin = 40,
        End = 41,
    }
    /// Of a transaction with objects, and its end.
    TransactionObject {
        Id = 50,
        Get = 52,
        Prefetch = 61,
        Query = 60,
        Allocate = 53,
        Write = 54,
        Create = 55,
        CreateCollection = 80,
        CreateBlobFrom = 87,
        RealOids = 56,
        AppendOffsets = 86,
        DeleteWithNames = 69,
        Commit = 57,
        Check = 58,
        Abort = 59,
    }
    /// Of a transaction with paths.
    TransactionPath {
        Root = 51,
        Resolve = 62,
        Bind = 63,
        Unbind = 64,
        Rename = 65,
        CreateDirectory = 66,
        RemoveDirectory = 67,
        List = 68,
    }
    /// Of a transaction with sets and directories.
    TransactionEntry {
        AddMember = 70,
        RemoveMember = 71,
        Contains = 72,
        Members = 73,
        Entry = 74,
        PutEntry = 75,
        AddEntry = 76,
        RemoveEntry = 77,
        Entries = 78,
        Count = 79,
    }
    /// Of a transaction with parts of blobs, and with attributes.
    TransactionBlob {
        Size = 90,
        ReadAt = 81,
        WriteAt = 82,
        Append = 83,
        Truncate = 84,
        Zero = 85,
        PutContent = 88,
        SetAttribute = 89,
    }
    /// Of streams.
    Stream {
        RowsNext = 100,
        RowsExplanation = 101,
        NamesNext = 102,
        ObjectsNext = 103,
        EventsNext = 104,
        WriterWrite = 105,
        WriterFinish = 106,
        ReaderNext = 107,
        WatchNext = 108,
    }
}

fn unknown_operation_error(code: i32) -> Error {
    let what = format!("there is no operation {code}: the two halves of the Java client are of different builds");
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// The name in lower case, without what only groups names.
    fn plain(name: &str) -> String {
        let name = name.strip_prefix("T_").or_else(|| name.strip_prefix("ATTEMPT_")).unwrap_or(name);
        name.replace('_', "").to_lowercase()
    }

    #[test]
    fn java_half_has_the_same_operations() {
        let file = Path::new("../../java/client/src/main/java/io/mortar/Operation.java");
        let text = std::fs::read_to_string(file).unwrap();
        // NAME(CODE, WAITS).
        let constants = text.lines().filter_map(|line| line.trim().split_once('('));
        let java: BTreeMap<i32, String> =
            constants.filter_map(|(name, rest)| Some((rest.split_once(',')?.0.parse().ok()?, plain(name)))).collect();
        let rust: BTreeMap<i32, String> = Operation::ALL.iter().map(|(name, code)| (*code, plain(name))).collect();
        assert_eq!(java, rust);
        assert_eq!(rust.len(), Operation::ALL.len(), "each number is that of one operation");
    }
}
