//! `#[derive(Persistent)]`: structs that Mortar stores as records.
//!
//! ```
//! use client_derive::Persistent;
//! use query::persistent::{Layout, Persistent, Ref};
//!
//! #[derive(Persistent, Debug, PartialEq)]
//! #[persistent(crate = "query")]
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
//! Of a struct:
//!
//! | attribute | means |
//! | --- | --- |
//! | `class = "com.example.Person"` | the class's name; without it, the struct's |
//! | `index(name, age)`, `unique(name, age)` | an index of several fields |
//! | `crate = "path"` | where `persistent` is, if not in `client` |
//!
//! Of a field:
//!
//! | attribute | means |
//! | --- | --- |
//! | `rename = "full_name"` | the field's name in the class |
//! | `number = 3` | the field's number in the class: it is found by that, whatever it is called there |
//! | `default`, `default = 3` | what it has in new classes, and in records that lack it |
//! | `index`, `unique` | an index of this field |
//! | `parent` | the fields of another persistent struct, whose class this class extends; on the first field only |
//! | `skip` | is not stored; `Default` when read |
//!
//! What cannot be stored does not compile, and says why:
//!
//! ```compile_fail,E0277
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query")]
//! struct Thing {
//!     content: Vec<u8>, // bytes are `Bytes`
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query")]
//! enum Colour {
//!     Red,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query")]
//! struct Pair(i64, i64);
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query")]
//! struct Generic<T> {
//!     value: T,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query")]
//! struct Misspelt {
//!     #[persistent(indexed)]
//!     value: i64,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query")]
//! struct Twice {
//!     a: i64,
//!     #[persistent(rename = "a")]
//!     b: i64,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client_derive::Persistent)]
//! #[persistent(crate = "query", index(colour))]
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
