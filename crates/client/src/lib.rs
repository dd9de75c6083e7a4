//! The client of Mortar: connect, read, commit; async, with a blocking face.
