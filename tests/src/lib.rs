//! Starting and killing real `mortar` processes for the end-to-end tests.
