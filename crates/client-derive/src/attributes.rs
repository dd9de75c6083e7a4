//! Parses a struct and its attributes.

use std::collections::BTreeSet;

use syn::meta::ParseNestedMeta;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Field as SynField, Fields, Ident, LitInt, LitStr, Path, Result, Type,
};

/// A struct that derives `Persistent`.
pub(crate) struct Struct {
    pub(crate) ident: Ident,
    /// The class's name.
    pub(crate) class: String,
    /// The path of the crate that has the module `persistent`.
    pub(crate) krate: Path,
    /// Indexes of several fields.
    pub(crate) indexes: Vec<Index>,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Index {
    /// The fields, by their names in the class.
    pub(crate) fields: Vec<String>,
    pub(crate) unique: bool,
}

pub(crate) struct Field {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) role: FieldRole,
}

/// The role of a field of the struct in the class.
pub(crate) enum FieldRole {
    /// A field of the class.
    Stored(StoredField),
    /// The fields of the class that it extends.
    Parent,
    /// Not stored.
    Skipped,
}

#[derive(Default)]
pub(crate) struct StoredField {
    /// Its name in the class.
    pub(crate) name: String,
    pub(crate) number: Option<u32>,
    pub(crate) default: Option<DefaultValue>,
    pub(crate) index: bool,
    pub(crate) unique: bool,
}

pub(crate) enum DefaultValue {
    /// The default of the type.
    OfType,
    Value(Box<Expr>),
}

impl Struct {
    pub(crate) fn of(input: &DeriveInput) -> Result<Self> {
        let Data::Struct(data) = &input.data else {
            return Err(Error::new_spanned(
                &input.ident,
                "only a struct can be persistent: its fields are stored as those of a record",
            ));
        };
        let Fields::Named(fields) = &data.fields else {
            return Err(Error::new_spanned(&input.ident, "the fields of a persistent struct must have names"));
        };
        if !input.generics.params.is_empty() {
            let message = "a persistent struct can have no parameters, because each class has one struct";
            return Err(Error::new_spanned(&input.generics, message));
        }
        let mut of = Self {
            ident: input.ident.clone(),
            class: unraw(&input.ident),
            krate: syn::parse_str("::client")?,
            indexes: vec![],
            fields: fields.named.iter().map(Field::of).collect::<Result<_>>()?,
        };
        let mut named = Vec::new();
        for_each_attribute(&input.attrs, |meta| of.apply_attribute(&meta, &mut named))?;
        of.check_names()?;
        for (idents, unique) in named {
            let fields = idents.iter().map(|ident| of.name_of(ident)).collect::<Result<_>>()?;
            of.indexes.push(Index { fields, unique });
        }
        Ok(of)
    }

    fn apply_attribute(&mut self, meta: &ParseNestedMeta<'_>, indexes: &mut Vec<(Vec<Ident>, bool)>) -> Result<()> {
        if meta.path.is_ident("class") {
            self.class = parse_name(meta)?;
        } else if meta.path.is_ident("crate") {
            self.krate = meta.value()?.parse::<LitStr>()?.parse()?;
        } else if meta.path.is_ident("index") || meta.path.is_ident("unique") {
            let mut fields = Vec::new();
            meta.parse_nested_meta(|field| {
                fields.push(field.path.require_ident()?.clone());
                Ok(())
            })?;
            indexes.push((fields, meta.path.is_ident("unique")));
        } else {
            return Err(meta.error("a persistent struct can have: class, index, unique, crate"));
        }
        Ok(())
    }

    /// Checks that no two fields have the same name or number, and that only the first field is a parent.
    fn check_names(&self) -> Result<()> {
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for (index, field) in self.fields.iter().enumerate() {
            match &field.role {
                FieldRole::Stored(stored) => {
                    if !names.insert(&stored.name) {
                        let message = format!("the class would have two fields named {:?}", stored.name);
                        return Err(Error::new_spanned(&field.ident, message));
                    }
                    if stored.number.is_some_and(|number| !numbers.insert(number)) {
                        return Err(Error::new_spanned(&field.ident, "another field has this number"));
                    }
                }
                FieldRole::Parent if index > 0 => {
                    return Err(Error::new_spanned(&field.ident, "only the first field can be a parent"));
                }
                FieldRole::Parent | FieldRole::Skipped => {}
            }
        }
        Ok(())
    }

    fn name_of(&self, ident: &Ident) -> Result<String> {
        let stored = self.fields.iter().find_map(|field| match &field.role {
            FieldRole::Stored(stored) if field.ident == *ident => Some(stored.name.clone()),
            _ => None,
        });
        stored.ok_or_else(|| Error::new_spanned(ident, "the struct stores no field of this name"))
    }
}

impl Field {
    fn of(field: &SynField) -> Result<Self> {
        let Some(ident) = field.ident.clone() else {
            return Err(Error::new_spanned(field, "the fields of a persistent struct must have names"));
        };
        let mut stored = StoredField { name: unraw(&ident), ..StoredField::default() };
        let (mut role, mut says) = (None, false);
        for_each_attribute(&field.attrs, |meta| {
            if meta.path.is_ident("parent") {
                role = Some(FieldRole::Parent);
            } else if meta.path.is_ident("skip") {
                role = Some(FieldRole::Skipped);
            } else {
                says = true;
                stored.apply_attribute(&meta)?;
            }
            Ok(())
        })?;
        if role.is_some() && says {
            return Err(Error::new_spanned(&ident, "a parent or a skipped field can have no other attributes"));
        }
        Ok(Self { ident, ty: field.ty.clone(), role: role.unwrap_or(FieldRole::Stored(stored)) })
    }
}

impl StoredField {
    fn apply_attribute(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("rename") {
            self.name = parse_name(meta)?;
        } else if meta.path.is_ident("number") {
            self.number = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
        } else if meta.path.is_ident("default") {
            let has_value = meta.input.peek(syn::Token![=]);
            self.default =
                Some(if has_value { DefaultValue::Value(meta.value()?.parse()?) } else { DefaultValue::OfType });
        } else if meta.path.is_ident("index") {
            self.index = true;
        } else if meta.path.is_ident("unique") {
            self.unique = true;
        } else {
            return Err(meta.error("a field can have: rename, number, default, index, unique, parent, skip"));
        }
        Ok(())
    }
}

/// Calls a function with each part of each `#[persistent(...)]`.
fn for_each_attribute(
    attributes: &[Attribute],
    mut visit: impl FnMut(ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    let mut ours = attributes.iter().filter(|attribute| attribute.path().is_ident("persistent"));
    ours.try_for_each(|attribute| attribute.parse_nested_meta(&mut visit))
}

/// The name after `=`.
fn parse_name(meta: &ParseNestedMeta<'_>) -> Result<String> {
    let text: LitStr = meta.value()?.parse()?;
    match text.value() {
        name if name.is_empty() => Err(Error::new_spanned(text, "a name must have at least one character")),
        name => Ok(name),
    }
}

/// `type` for `r#type`.
fn unraw(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_struct_is_refused_with_a_reason() {
        let cases = [
            ("enum A { B }", "only a struct can be persistent"),
            ("struct A(i64);", "must have names"),
            ("struct A<T> { a: T }", "can have no parameters"),
            ("struct A<'a> { a: &'a str }", "can have no parameters"),
            ("#[persistent(klass = \"B\")] struct A { a: i64 }", "can have: class, index, unique, crate"),
            ("#[persistent(class = \"\")] struct A { a: i64 }", "at least one character"),
            ("#[persistent(index(b))] struct A { a: i64 }", "stores no field of this name"),
            ("#[persistent(index())] struct A { a: i64 }", "expected nested attribute"),
            ("struct A { #[persistent(indexed)] a: i64 }", "can have: rename, number, default"),
            ("struct A { #[persistent(number = \"x\")] a: i64 }", "integer literal"),
            ("struct A { a: i64, #[persistent(rename = \"a\")] b: i64 }", "two fields named \"a\""),
            ("struct A { #[persistent(number = 1)] a: i64, #[persistent(number = 1)] b: i64 }", "has this number"),
            ("struct A { a: i64, #[persistent(parent)] b: B }", "only the first field can be a parent"),
            ("struct A { #[persistent(parent, index)] b: B }", "no other attributes"),
        ];
        for (text, why) in cases {
            let Err(error) = Struct::of(&syn::parse_str(text).unwrap()) else { panic!("{text} was accepted") };
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_indexes_are_those_of_the_class() {
        let text = "#[persistent(unique(b, r#type))] struct A { #[persistent(rename = \"c\")] b: i64, r#type: i64 }";
        let of = Struct::of(&syn::parse_str(text).unwrap()).unwrap();
        assert_eq!(of.class, "A");
        assert_eq!(of.indexes[0].fields, ["c", "type"]);
    }
}
