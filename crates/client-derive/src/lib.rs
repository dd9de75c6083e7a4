//! `#[derive(Persistent)]`: structs that Mortar stores as records.
//!
//! ```
//! use client_derive::Persistent;
//! use client::persistent::{Layout, Persistent, Ref};
//!
//! #[derive(Persistent, Debug, PartialEq)]
//! struct Person {
//!     #[persistent(index)]
//!     name: String,
//!     age: Option<i64>,
//!     boss: Option<Ref<Person>>,
//! }
//!
//! let layout = Layout::declared::<Person>(model::ClassId(1));
//! let ann = Person { name: "Ann".into(), age: Some(30), boss: None };
//! let record = ann.to_record(&layout, None)?;
//! assert_eq!(Person::from_record(&model::RecordRef::new(&record)?, &layout)?, ann);
//! assert_eq!(Person::class().indexes[0].name, "Person.name");
//! # Ok::<(), model::Error>(())
//! ```
//!
//! Attributes of a struct:
//!
//! | attribute | means |
//! | --- | --- |
//! | `class = "com.example.Person"` | the name of the class; by default that of the struct |
//! | `index(name, age)`, `unique(name, age)` | an index of several fields |
//! | `crate = "path"` | the crate that has the module `persistent`; by default `client` |
//!
//! Attributes of a field:
//!
//! | attribute | means |
//! | --- | --- |
//! | `rename = "full_name"` | the field's name in the class |
//! | `number = 3` | the field's number in the class: the field is found by it, and not by its name |
//! | `default`, `default = 3` | its value in new objects and in records that lack it |
//! | `index`, `unique` | an index of this field |
//! | `parent` | the fields of another persistent struct, whose class this class extends; on the first field only |
//! | `skip` | the field is not stored; it is `Default` when read |
//!
//! A struct that cannot be stored does not compile, and the message says why:
//!
//! ```compile_fail,E0277
//! #[derive(client_derive::Persistent)]
//! struct Thing {
//!     content: Vec<u8>, // bytes are `Bytes`
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! enum Colour {
//!     Red,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! struct Pair(i64, i64);
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! struct Generic<T> {
//!     value: T,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! struct Misspelt {
//!     #[persistent(indexed)]
//!     value: i64,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! struct Twice {
//!     a: i64,
//!     #[persistent(rename = "a")]
//!     b: i64,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(index(colour))]
//! struct NoSuchField {
//!     a: i64,
//! }
//! ```

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Writes `Persistent` for a struct; see the crate's documentation for the attributes.
#[proc_macro_derive(Persistent, attributes(persistent))]
pub fn derive_persistent(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    attributes::Struct::of(&input).map_or_else(|error| error.into_compile_error(), |of| expand::expand(&of)).into()
}
