//! What must hold of a history, one file for each demand.
