//! The roles that a Mortar process can play. So far: the brick.
