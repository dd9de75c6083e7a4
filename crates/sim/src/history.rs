//! What clients did and saw, as JSON lines.
