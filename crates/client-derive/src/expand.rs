//! Generates the code.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use crate::attributes::{DefaultValue, Field, FieldRole, StoredField, Struct};

/// Generates the `impl Persistent` of a struct.
pub(crate) fn expand(of: &Struct) -> TokenStream {
    let Struct { ident, class, krate, .. } = of;
    let persistent = quote!(#krate::persistent);
    let parent = of.fields.iter().find(|field| matches!(field.role, FieldRole::Parent)).map(|field| &field.ty);
    let (parent_name, parent_fields) = match parent {
        Some(parent) => {
            let described = quote_spanned!(parent.span()=> <#parent as #persistent::Persistent>);
            (quote!(Some(#described::CLASS)), quote!(#described::class().fields))
        }
        None => (quote!(None), quote!(::std::vec::Vec::new())),
    };
    let described =
        of.fields.iter().filter_map(|field| stored_field(field).map(|stored| description(&persistent, field, stored)));
    let indexes = indexes(of, &persistent);
    let related = of.fields.iter().filter_map(|field| expand_related(&persistent, field));
    let writes = of.fields.iter().filter_map(|field| write(&persistent, field));
    let reads = of.fields.iter().map(|field| read(&persistent, field));
    let is_skipped = of.fields.iter().any(|field| matches!(field.role, FieldRole::Skipped));
    let has_skipped = match parent {
        Some(parent) if !is_skipped => {
            quote_spanned!(parent.span()=> <#parent as #persistent::Persistent>::HAS_SKIPPED_FIELDS)
        }
        _ => quote!(#is_skipped),
    };
    quote! {
        #[automatically_derived]
        impl #persistent::Persistent for #ident {
            const CLASS: &'static str = #class;
            const HAS_SKIPPED_FIELDS: bool = #has_skipped;

            fn class() -> #persistent::ClassDescription {
                #[allow(unused_mut)]
                let mut fields: ::std::vec::Vec<#persistent::FieldDescription> = #parent_fields;
                #(fields.push(#described);)*
                #persistent::ClassDescription {
                    name: #class,
                    parent: #parent_name,
                    fields,
                    indexes: ::std::vec![#(#indexes),*],
                }
            }

            fn add_related(classes: &mut #persistent::Classes) {
                #(#related)*
                let _ = classes;
            }

            fn write(&self, record: &mut #persistent::FieldWriter<'_>) -> #persistent::DerivedResult<()> {
                #(#writes)*
                let _ = record;
                Ok(())
            }

            fn read(record: &mut #persistent::FieldReader<'_>) -> #persistent::DerivedResult<Self> {
                let _ = &record;
                Ok(Self { #(#reads),* })
            }
        }
    }
}

fn stored_field(field: &Field) -> Option<&StoredField> {
    match &field.role {
        FieldRole::Stored(stored) => Some(stored),
        FieldRole::Parent | FieldRole::Skipped => None,
    }
}

fn description(persistent: &TokenStream, field: &Field, stored: &StoredField) -> TokenStream {
    let (ty, name) = (&field.ty, &stored.name);
    let value = quote_spanned!(ty.span()=> <#ty as #persistent::FieldValue>);
    let number = match stored.number {
        Some(number) => quote!(Some(#persistent::Number(#number))),
        None => quote!(None),
    };
    let default = match default(field, stored) {
        Some(default) => quote!(Some(#value::to_value(&#default))),
        None => quote!(None),
    };
    quote! {
        #persistent::FieldDescription {
            class: <Self as #persistent::Persistent>::CLASS,
            name: #name,
            number: #number,
            ty: #value::field_type(),
            optional: #value::OPTIONAL,
            default: #default,
        }
    }
}

/// The default, as an expression of the field's type.
fn default(field: &Field, stored: &StoredField) -> Option<TokenStream> {
    let ty = &field.ty;
    Some(match stored.default.as_ref()? {
        DefaultValue::OfType => quote_spanned!(ty.span()=> <#ty as ::core::default::Default>::default()),
        DefaultValue::Value(value) => quote!({ let default: #ty = #value; default }),
    })
}

/// The indexes of several fields, then those of one field.
fn indexes(of: &Struct, persistent: &TokenStream) -> Vec<TokenStream> {
    let index = |fields: &[String], unique: bool| {
        let name = format!("{}.{}", of.class, fields.join("-"));
        quote!(#persistent::IndexDescription {
            name: ::std::string::String::from(#name),
            fields: ::std::vec![#(#fields),*],
            unique: #unique,
        })
    };
    let several = of.indexes.iter().map(|several| index(&several.fields, several.unique));
    let one = of.fields.iter().filter_map(stored_field).filter(|stored| stored.index || stored.unique);
    several.chain(one.map(|stored| index(std::slice::from_ref(&stored.name), stored.unique))).collect()
}

fn expand_related(persistent: &TokenStream, field: &Field) -> Option<TokenStream> {
    let ty = &field.ty;
    match field.role {
        FieldRole::Stored(_) => {
            Some(quote_spanned!(ty.span()=> <#ty as #persistent::FieldValue>::add_related(classes);))
        }
        FieldRole::Parent => Some(quote_spanned!(ty.span()=> classes.add::<#ty>();)),
        FieldRole::Skipped => None,
    }
}

fn write(persistent: &TokenStream, field: &Field) -> Option<TokenStream> {
    let Field { ident, ty, role } = field;
    match role {
        FieldRole::Stored(_) => Some(quote_spanned!(ty.span()=> record.put(&self.#ident)?;)),
        FieldRole::Parent => Some(quote_spanned!(ty.span()=> #persistent::Persistent::write(&self.#ident, record)?;)),
        FieldRole::Skipped => None,
    }
}

fn read(persistent: &TokenStream, field: &Field) -> TokenStream {
    let Field { ident, ty, role } = field;
    match role {
        FieldRole::Stored(stored) => match &stored.default {
            Some(DefaultValue::OfType) => {
                quote_spanned!(ty.span()=> #ident: record.take_or(<#ty as ::core::default::Default>::default)?)
            }
            Some(DefaultValue::Value(value)) => {
                quote_spanned!(ty.span()=> #ident: record.take_or(|| -> #ty { #value })?)
            }
            None => quote_spanned!(ty.span()=> #ident: record.take()?),
        },
        FieldRole::Parent => quote_spanned!(ty.span()=> #ident: #persistent::Persistent::read(record)?),
        FieldRole::Skipped => quote_spanned!(ty.span()=> #ident: <#ty as ::core::default::Default>::default()),
    }
}
