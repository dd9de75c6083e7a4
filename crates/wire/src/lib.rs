//! Mortar's wire schema, framing, transports and two-way calls.
