//! `#[derive(Persistent)]`: structs that Mortar stores as records. `client::persistent` documents its attributes and has its tests. As a
//! dev-dependency of this procedural macro, the client with all of its dependencies would be compiled a second time, for the host.

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Writes `Persistent` for a struct; the documentation of `client::persistent` lists the attributes.
#[proc_macro_derive(Persistent, attributes(persistent))]
pub fn derive_persistent(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    attributes::Struct::of(&input).map_or_else(|error| error.into_compile_error(), |of| expand::expand(&of)).into()
}
