//! `mortar class`: the classes of a space of a cluster.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use client::{AdminClient, Client};
use meta::catalog::{Class, ClassDefinition, EvolutionStep, Field, FieldDefinition, FieldType};
use meta::catalog::{SchemaAnswer, SchemaRequest};
use model::{ClassId, Value};
use node::catalog_messages::{schema_answer_from_proto, schema_request_to_proto};
use query::{Schema, Type};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, RemovalEnd, Report, pluralize};
use crate::record_json::{self, NameBindings};

const EXAMPLES: &str = "\
Examples:
  mortar class define Person --field name:string --field 'age:int64=0' --field 'boss:ref<Person>?'
  mortar class define Student --extends Person --field 'marks:map<string, decimal>?'
  mortar class define --file classes.toml
  mortar class list
  mortar class show Student
  mortar class evolve Person --add 'email:string?' --rename age=years --widen years:decimal
  mortar class history Person
  mortar class rm Student                       if it has no objects, and nothing needs it

A field is NAME:TYPE, with ? behind the type if it may be null, and =DEFAULT for new objects (and, when it is added, \
for old ones). Types: bool, int64, float64, decimal, string, bytes, date, timestamp, ref, ref<CLASS>, list<TYPE>, \
set<TYPE>, map<TYPE, TYPE>.

A file has one or many classes, in TOML or JSON:
  [[class]]
  name = \"Person\"
  fields = [\"name: string\", \"age: int64 = 0\"]";

/// Make, show and change the classes of a cluster's space
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClassCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the classes
    #[command(alias = "ls", after_help = EXAMPLES)]
    List,
    /// Show a class: its fields, those of its parents included, and its indexes
    #[command(after_help = EXAMPLES)]
    Show {
        /// Its name
        name: String,
    },
    /// Make classes; those that exist and are the same are not changed
    #[command(after_help = EXAMPLES)]
    Define {
        /// Its name
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        name: Option<String>,
        /// A field: NAME:TYPE, NAME:TYPE?, NAME:TYPE=DEFAULT
        #[arg(short, long = "field", value_name = "FIELD", conflicts_with = "file")]
        fields: Vec<String>,
        /// The class that it extends
        #[arg(long, value_name = "CLASS", conflicts_with = "file")]
        extends: Option<String>,
        /// Read classes from a file; - is the standard input
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Change a class; its objects stay as they are, and are read through the new version
    #[command(after_help = EXAMPLES)]
    Evolve {
        /// Its name
        name: String,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a class that has no objects, and that no class, index or field needs. Objects of it that come meanwhile wait
    #[command(alias = "remove", after_help = EXAMPLES)]
    Rm {
        /// Its name
        name: String,
        /// Take back a removal whose peer server has ended before it did: until then objects of the class are refused
        #[arg(long)]
        cancel: bool,
    },
    /// Show all versions of a class
    #[command(after_help = EXAMPLES)]
    History {
        /// Its name
        name: String,
    },
}

/// The changes, made together in this order.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Rename a field
    #[arg(long, value_name = "FIELD=NAME")]
    rename: Vec<String>,
    /// Remove a field; its values in old objects are no longer read
    #[arg(long, value_name = "FIELD")]
    remove: Vec<String>,
    /// Add a field, which may be null or has a default
    #[arg(long, value_name = "FIELD")]
    add: Vec<String>,
    /// Give a field a type that holds all that the old one did
    #[arg(long, value_name = "FIELD:TYPE")]
    widen: Vec<String>,
    /// Give new objects another default
    #[arg(long, value_name = "FIELD=DEFAULT")]
    default: Vec<String>,
    /// Give new objects no default
    #[arg(long, value_name = "FIELD")]
    no_default: Vec<String>,
    /// Let a field be null
    #[arg(long, value_name = "FIELD")]
    optional: Vec<String>,
    /// Do not let a field be null; where it is, its default is read
    #[arg(long, value_name = "FIELD")]
    required: Vec<String>,
}

/// A file of classes in its member `class`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassFile {
    class: Vec<ClassInFile>,
}

/// A class in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassInFile {
    name: String,
    #[serde(default)]
    extends: Option<String>,
    #[serde(default)]
    fields: Vec<String>,
}

// ---------------------------------------------------------------------------------------------- requests

/// Requests the classes and indexes of the session's space, or changes them.
pub(crate) async fn ask(client: &AdminClient, request: &SchemaRequest) -> Result<SchemaAnswer> {
    let request = schema_request_to_proto(&client.url().space, request)?;
    Ok(schema_answer_from_proto(client.describe(request).await?)?)
}

/// The classes of a cluster's space.
pub(crate) async fn schema(cluster: &Client) -> Result<Schema> {
    let request = schema_request_to_proto("", &SchemaRequest::Show)?;
    let known = schema_answer_from_proto(cluster.describe(request).await?)?;
    Ok(node::cluster_view::QuerySchema::of(&known.classes, &known.indexes)?.classes)
}

pub(crate) async fn run(args: ClassCommand, session: &mut CommandContext) -> Result {
    let request = match &args.action {
        Action::List | Action::Show { .. } => SchemaRequest::Show,
        Action::Define { name, fields, extends, file } => {
            let classes = match (name, file) {
                (_, Some(file)) => read(file)?,
                (name, None) => {
                    let is_bare = fields.is_empty() && extends.is_none();
                    name.iter().try_for_each(|name| check_no_file(name, is_bare))?;
                    let fields = fields.iter().map(|field| parse_field(field)).collect::<Result<_>>()?;
                    vec![ClassDefinition { name: name.clone().unwrap_or_default(), parent: extends.clone(), fields }]
                }
            };
            SchemaRequest::Define { classes }
        }
        Action::Evolve { name, change } => {
            let client = session.connect().await?;
            let known = ask(&client, &SchemaRequest::Show).await?;
            SchemaRequest::Evolve { class: name.clone(), steps: change.steps(&known, name)? }
        }
        Action::History { name } => SchemaRequest::History { class: name.clone() },
        Action::Rm { name, cancel } => SchemaRequest::RemoveClass { name: name.clone(), cancel: *cancel },
    };
    let client = session.connect().await?;
    let answer = ask(&client, &request).await?;
    match args.action {
        Action::List => {
            let lines = answer.classes.iter().map(|class| ClassLine::of(class, &answer));
            lines.collect::<Vec<_>>().iter().try_for_each(|line| session.output.print(line))
        }
        Action::Show { name } => {
            let shown = ClassDetails::of(&find(&answer, &name)?, &answer);
            session.output.print(&shown)
        }
        Action::History { .. } => {
            answer.classes.iter().try_for_each(|class| session.output.print(&ClassDetails::of(class, &answer)))
        }
        Action::Rm { name, cancel: false } => session.output.print(&RemovalEnd::Removed(name)),
        Action::Rm { name, cancel: true } => session.output.print(&RemovalEnd::RemovalCancelled(name)),
        Action::Define { .. } | Action::Evolve { .. } => {
            // The classes that they extend may not be among them.
            let all = ask(&client, &SchemaRequest::Show).await?;
            answer.classes.iter().try_for_each(|class| session.output.print(&ClassLine::of(class, &all)))
        }
    }
}

/// Refuses the name of a file as that of a class. A class may be named `Note.json`, but one without fields and a parent is a mistake.
fn check_no_file(name: &str, is_bare: bool) -> Result {
    let has_extension = [".json", ".toml"].iter().any(|extension| name.ends_with(extension));
    let is_file = name.contains('/') || (is_bare && has_extension);
    if !is_file {
        return Ok(());
    }
    let what = format!("{name:?} is the name of a file, not of a class");
    Err(Failure::usage(what).hint(format!("To make the classes in a file: `mortar class define --file {name}`.")))
}

/// The class with this name.
pub(crate) fn find(answer: &SchemaAnswer, name: &str) -> Result<Class> {
    answer.classes.iter().find(|class| class.name == name).cloned().ok_or_else(|| {
        let known: Vec<&str> = answer.classes.iter().map(|class| class.name.as_str()).take(10).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Failure::not_found(format!("there is no class {name:?} in this space; there are: {known}"))
    })
}

// ---------------------------------------------------------------------------------------------- files

fn read(path: &Path) -> Result<Vec<ClassDefinition>> {
    let cannot = |error| Failure::file(format!("cannot read {}", path.display()), &error);
    let mut text = String::new();
    match path.as_os_str() == "-" {
        true => io::stdin().read_to_string(&mut text).map(drop).map_err(cannot)?,
        false => text = fs::read_to_string(path).map_err(cannot)?,
    }
    let is_json = text.trim_start().starts_with(['{', '[']) && !text.trim_start().starts_with("[[");
    let is_json = is_json || path.extension().is_some_and(|end| end == "json");
    let wrong = |why| {
        let what = format!("cannot read classes from {}: {why}", path.display());
        Failure::usage(what).hint("See the example in `mortar class --help`.")
    };
    let written = classes_in(&text, is_json).map_err(wrong)?;
    let definition = |ClassInFile { name, extends, fields }| {
        let fields = fields.iter().map(|field| parse_field(field)).collect::<Result<_>>()?;
        Ok(ClassDefinition { name, parent: extends, fields })
    };
    written.into_iter().map(definition).collect()
}

/// The classes in a text: a list of them, one, or a list in the member `class`. An error says where the text is wrong.
fn classes_in(text: &str, is_json: bool) -> std::result::Result<Vec<ClassInFile>, String> {
    fn parse<T: DeserializeOwned>(text: &str, is_json: bool) -> std::result::Result<T, String> {
        match is_json {
            true => serde_json::from_str(text).map_err(|error| error.to_string()),
            false => toml::from_str(text).map_err(|error| error.to_string()),
        }
    }
    let form: Json = parse(text, is_json)?;
    if form.is_array() {
        return parse(text, is_json);
    }
    match form.get("class") {
        Some(_) => parse(text, is_json).map(|ClassFile { class }| class),
        None => parse(text, is_json).map(|one| vec![one]),
    }
}

/// `NAME:TYPE`, `NAME:TYPE?`, `NAME:TYPE=DEFAULT`.
fn parse_field(text: &str) -> Result<FieldDefinition> {
    let wrong = |why: String| {
        Failure::usage(format!("{text:?} is not a field: {why}"))
            .hint("Write NAME:TYPE, NAME:TYPE? or NAME:TYPE=DEFAULT.")
    };
    let (name, rest) = text.split_once(':').ok_or_else(|| wrong("it has no type".to_owned()))?;
    let (of, default) = match rest.split_once('=') {
        Some((of, default)) => (of.trim(), Some(default.trim())),
        None => (rest.trim(), None),
    };
    let (of, optional) = match of.strip_suffix('?') {
        Some(of) => (of, true),
        None => (of, false),
    };
    let field_type: FieldType = of.parse().map_err(|error: model::Error| wrong(error.message().to_owned()))?;
    let default = default.map(|text| literal(&field_type, text)).transpose().map_err(wrong)?;
    Ok(FieldDefinition { name: name.trim().to_owned(), field_type, optional, default })
}

/// A default: JSON, or plain text.
fn literal(of: &FieldType, text: &str) -> std::result::Result<Value, String> {
    let of: Type = of.map_classes(&|_| None);
    let plain = Json::String(text.to_owned());
    // As a JSON number a decimal would lose trailing zeros.
    let json = match of {
        Type::Decimal => plain.clone(),
        _ => serde_json::from_str(text).unwrap_or_else(|_| plain.clone()),
    };
    let mut names = NameBindings::default();
    let value = record_json::value_from_json(&of, &json, &mut names).or_else(|why| match json {
        Json::String(_) => Err(why),
        // A text that looks like a number.
        _ => record_json::value_from_json(&of, &plain, &mut names).map_err(|_| why),
    })?;
    match names.unresolved.is_empty() {
        true => Ok(value),
        false => Err("a default refers to an object by its identifier".to_owned()),
    }
}

impl Change {
    fn steps(&self, known: &SchemaAnswer, class: &str) -> Result<Vec<EvolutionStep>> {
        let parted = |text: &str, at: char| {
            let wrong = || Failure::usage(format!("{text:?} has no {at:?}: write FIELD{at}..."));
            let (field, to) = text.split_once(at).ok_or_else(wrong)?;
            Ok::<_, Failure>((field.trim().to_owned(), to.trim().to_owned()))
        };
        let mut steps = Vec::new();
        for text in &self.rename {
            let (field, to) = parted(text, '=')?;
            steps.push(EvolutionStep::Rename { field, to });
        }
        steps.extend(self.remove.iter().map(|field| EvolutionStep::Remove { field: field.clone() }));
        for text in &self.add {
            steps.push(EvolutionStep::Add(parse_field(text)?));
        }
        let mut widened = Vec::new();
        for text in &self.widen {
            let (field, to) = parted(text, ':')?;
            let to: FieldType = to.parse()?;
            widened.push((field.clone(), to.clone()));
            steps.push(EvolutionStep::Widen { field, to });
        }
        for text in &self.default {
            let (field, text) = parted(text, '=')?;
            // The field may have been renamed by an earlier step.
            let before = self.rename.iter().filter_map(|text| text.split_once('='));
            let old = before.into_iter().find(|(_, to)| to.trim() == field).map_or(&*field, |(old, _)| old.trim());
            let class = find(known, class)?;
            let of = widened.iter().find(|(name, _)| *name == field).map(|(_, to)| to.clone());
            let of = of.or_else(|| class.fields.iter().find(|known| known.name == old).map(|it| it.field_type.clone()));
            let of = of.ok_or_else(|| Failure::not_found(format!("{} has no own field {field:?}", class.name)))?;
            let default = literal(&of, &text).map_err(Failure::usage)?;
            steps.push(EvolutionStep::SetDefault { field, default: Some(default) });
        }
        let none =
            self.no_default.iter().map(|field| EvolutionStep::SetDefault { field: field.clone(), default: None });
        steps.extend(none);
        steps.extend(self.optional.iter().map(|field| EvolutionStep::MakeOptional { field: field.clone() }));
        steps.extend(self.required.iter().map(|field| EvolutionStep::MakeRequired { field: field.clone() }));
        Ok(steps)
    }
}

// ---------------------------------------------------------------------------------------------- output

#[derive(Serialize)]
struct ClassLine {
    id: u32,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    extends: Option<String>,
    version: u32,
    /// Its own fields.
    fields: usize,
}

impl ClassLine {
    fn of(class: &Class, all: &SchemaAnswer) -> Self {
        let (id, name, version) = (class.id.0, class.name.clone(), class.version);
        Self { id, name, extends: parent(class, all), version, fields: class.fields.len() }
    }
}

impl Report for ClassLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let extends = self.extends.as_ref().map(|parent| format!(" extends {parent}")).unwrap_or_default();
        let fields = pluralize(self.fields as u64, "field", "fields");
        writeln!(out, "{}{}  version {}, {fields}", Printable(&self.name), Printable(&extends), self.version)
    }
}

/// The name of a class's parent, if it is known.
fn parent(class: &Class, all: &SchemaAnswer) -> Option<String> {
    let id = class.parent?;
    Some(
        all.classes.iter().find(|other| other.id == id).map_or_else(|| format!("class {}", id.0), |it| it.name.clone()),
    )
}

/// A class and its ancestors.
pub(crate) fn lineage(of: ClassId, all: &SchemaAnswer) -> Vec<&Class> {
    let mut lineage: Vec<&Class> = Vec::new();
    let mut next = Some(of);
    while let Some(class) = next.and_then(|id| all.classes.iter().find(|other| other.id == id)) {
        // Parents exist before their children, so this ends; but a server may send a cycle.
        if lineage.iter().any(|known| known.id == class.id) {
            break;
        }
        lineage.push(class);
        next = class.parent;
    }
    lineage
}

#[derive(Serialize)]
struct ClassDetails {
    #[serde(flatten)]
    line: ClassLine,
    #[serde(rename = "all_fields")]
    fields: Vec<FieldDetails>,
    indexes: Vec<String>,
}

#[derive(Serialize)]
struct FieldDetails {
    number: u32,
    name: String,
    #[serde(rename = "type")]
    field_type: String,
    optional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Json>,
    /// The class that it is inherited from.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

impl ClassDetails {
    fn of(class: &Class, all: &SchemaAnswer) -> Self {
        let field = |field: &Field, from: Option<&Class>| FieldDetails {
            number: field.number.0,
            name: field.name.clone(),
            field_type: field.field_type.to_string(),
            optional: field.optional,
            default: field.default.as_ref().map(record_json::to_json),
            from: from.map(|from| from.name.clone()),
        };
        let mut fields: Vec<FieldDetails> = class.fields.iter().map(|own| field(own, None)).collect();
        let above = lineage(class.id, all);
        for parent in above.iter().skip(1) {
            fields.extend(parent.fields.iter().map(|of| field(of, Some(parent))));
        }
        let indexes = all.indexes.iter().filter(|index| above.iter().any(|class| class.id == index.class));
        let indexes = indexes.map(|index| index.name.clone()).collect();
        Self { line: ClassLine::of(class, all), fields, indexes }
    }
}

impl Report for ClassDetails {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.line.write_text(out)?;
        for field in &self.fields {
            let null = if field.optional { "?" } else { "" };
            let default = field.default.as_ref().map(|default| format!(" = {default}")).unwrap_or_default();
            let from = field.from.as_ref().map(|from| format!("  (of {from})")).unwrap_or_default();
            let line = format!("{}: {}{null}{default}{from}", field.name, field.field_type);
            writeln!(out, "  {}", Printable(&line))?;
        }
        if !self.indexes.is_empty() {
            writeln!(out, "  indexes: {}", Printable(&self.indexes.join(", ")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn fields_are_parsed_with_nullability_and_defaults() {
        let field = |text| parse_field(text).unwrap();
        assert_eq!(field("name:string"), FieldDefinition::required("name", FieldType::String));
        assert_eq!(field(" age : int64? "), FieldDefinition::optional("age", FieldType::Int64));
        assert_eq!(field("age: int64 = 0"), FieldDefinition::required("age", FieldType::Int64).with_default(0_i64));
        let text = FieldDefinition::optional("t", FieldType::String).with_default("a=b");
        assert_eq!(field("t:string?=a=b"), text);
        let number = FieldDefinition::required("t", FieldType::String).with_default("5");
        assert_eq!(field("t:string=5"), number, "a text may look like a number");
        let map = "map<string, ref<Person>>".parse().unwrap();
        assert_eq!(field("m:map<string, ref<Person>>?"), FieldDefinition::optional("m", map));
        assert_eq!(field("d:decimal=1.50").default, Some(Value::Decimal("1.50".parse().unwrap())));
        for wrong in ["name", "name:strin", "age:int64=x", "r:ref=/ann"] {
            assert!(parse_field(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn class_files_are_toml_or_json() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("classes");
        let toml = "[[class]]\nname = \"A\"\nfields = [\"x: int64\"]\n[[class]]\nname = \"B\"\nextends = \"A\"\n";
        for (text, count) in [
            (toml, 2),
            ("name = \"A\"\nfields = []\n", 1),
            (r#"{"name": "A", "fields": ["x: int64"]}"#, 1),
            (r#"[{"name": "A"}, {"name": "B", "extends": "A"}]"#, 2),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap().len(), count, "{text}");
        }
        for (wrong, says) in [
            ("[[class]]\nname = \"A\"\nfelds = []\n", ["line 3", "unknown field `felds`"]),
            ("nmae = \"A\"", ["line 1", "unknown field `nmae`"]),
            ("{\"class\": [{\"name\": \"A\",\n\"felds\": []}]}", ["line 2", "unknown field `felds`"]),
            ("[{\"name\": 5}]", ["line 1", "expected a string"]),
        ] {
            fs::write(&path, wrong).unwrap();
            let message = read(&path).err().unwrap().to_string();
            assert!(says.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
