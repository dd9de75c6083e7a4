//! Requests about classes and indexes.

use meta::catalog::{EvolutionStep, Index, IndexId, IndexState, JobId, SchemaAnswer, SchemaRequest};
use model::{ClassDefinition, ClassId, FieldNumber, FieldType, Result};
use wire::proto::schema as proto;
use wire::proto::schema::describe::Request;
use wire::proto::schema::evolution_step::Step;
use wire::schema::{value_from_proto, value_to_proto};

use super::invalid;

/// The message of a request about a space; an empty name is the space of the connection.
///
/// # Errors
/// [`ErrorKind::TooLarge`](model::ErrorKind::TooLarge) if a default is too large to be encoded.
pub fn schema_request_to_proto(space: &str, request: &SchemaRequest) -> Result<proto::Describe> {
    let request = match request {
        SchemaRequest::Show => Request::Show(proto::Show {}),
        SchemaRequest::History { class } => Request::History(proto::History { class: class.clone() }),
        SchemaRequest::Define { classes } => {
            Request::Define(proto::Define { classes: classes.iter().map(class_to_proto).collect::<Result<_>>()? })
        }
        SchemaRequest::Evolve { class, steps } => {
            let steps = steps.iter().map(step_to_proto).collect::<Result<_>>()?;
            Request::Evolve(proto::Evolve { class: class.clone(), steps })
        }
        SchemaRequest::CreateIndex { name, class, fields, unique } => {
            let index = proto::IndexDefinition { name: name.clone(), fields: fields.clone(), unique: *unique };
            Request::CreateIndex(proto::CreateIndex { class: class.clone(), index: Some(index) })
        }
        SchemaRequest::RemoveClass { name, cancel } => {
            Request::RemoveClass(proto::RemoveClass { name: name.clone(), cancel: *cancel })
        }
        SchemaRequest::RemoveIndex { name } => Request::RemoveIndex(proto::RemoveIndex { name: name.clone() }),
    };
    Ok(proto::Describe { space: space.to_owned(), request: Some(request) })
}

/// The request of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it is incomplete, and the errors of its types and values.
pub fn schema_request_from_proto(request: Option<Request>) -> Result<SchemaRequest> {
    let missing = || invalid("a request about classes and indexes does not say what is wanted");
    Ok(match request.ok_or_else(missing)? {
        Request::Show(proto::Show {}) => SchemaRequest::Show,
        Request::History(proto::History { class }) => SchemaRequest::History { class },
        Request::Define(proto::Define { classes }) => {
            SchemaRequest::Define { classes: classes.into_iter().map(class_from_proto).collect::<Result<_>>()? }
        }
        Request::Evolve(proto::Evolve { class, steps }) => {
            SchemaRequest::Evolve { class, steps: steps.into_iter().map(step_from_proto).collect::<Result<_>>()? }
        }
        Request::CreateIndex(proto::CreateIndex { class, index }) => {
            let index = index.ok_or_else(|| invalid("a request for an index lacks its definition"))?;
            let proto::IndexDefinition { name, fields, unique } = index;
            SchemaRequest::CreateIndex { name, class, fields, unique }
        }
        Request::RemoveClass(proto::RemoveClass { name, cancel }) => SchemaRequest::RemoveClass { name, cancel },
        Request::RemoveIndex(proto::RemoveIndex { name }) => SchemaRequest::RemoveIndex { name },
    })
}

fn class_to_proto(class: &ClassDefinition) -> Result<proto::ClassDefinition> {
    let fields = class.fields.iter().map(TryFrom::try_from).collect::<Result<_>>()?;
    Ok(proto::ClassDefinition { name: class.name.clone(), parent: class.parent.clone(), fields, indexes: Vec::new() })
}

fn class_from_proto(class: proto::ClassDefinition) -> Result<ClassDefinition> {
    let proto::ClassDefinition { name, parent, fields, indexes } = class;
    if !indexes.is_empty() {
        return Err(invalid("the indexes of new classes are created by requests of their own"));
    }
    let fields = fields.into_iter().map(TryFrom::try_from).collect::<Result<_>>()?;
    Ok(ClassDefinition { name, parent, fields })
}

fn step_to_proto(step: &EvolutionStep) -> Result<proto::EvolutionStep> {
    let step = match step {
        EvolutionStep::Add(field) => Step::Add(field.try_into()?),
        EvolutionStep::Remove { field } => Step::Remove(field.clone()),
        EvolutionStep::Rename { field, to } => {
            Step::Rename(proto::RenameField { field: field.clone(), to: to.clone() })
        }
        EvolutionStep::Widen { field, to } => {
            Step::Widen(proto::WidenField { field: field.clone(), to: Some(to.into()) })
        }
        EvolutionStep::SetDefault { field, default } => {
            let default = value_to_proto(default.as_ref())?;
            Step::SetDefault(proto::SetDefault { field: field.clone(), default })
        }
        EvolutionStep::MakeOptional { field } => Step::MakeOptional(field.clone()),
        EvolutionStep::MakeRequired { field } => Step::MakeRequired(field.clone()),
    };
    Ok(proto::EvolutionStep { step: Some(step) })
}

fn step_from_proto(step: proto::EvolutionStep) -> Result<EvolutionStep> {
    Ok(match step.step.ok_or_else(|| invalid("a change of a class does not say what it changes"))? {
        Step::Add(field) => EvolutionStep::Add(field.try_into()?),
        Step::Remove(field) => EvolutionStep::Remove { field },
        Step::Rename(proto::RenameField { field, to }) => EvolutionStep::Rename { field, to },
        Step::Widen(proto::WidenField { field, to }) => {
            let to = to.ok_or_else(|| invalid("a field that is to be widened gets no type"))?;
            EvolutionStep::Widen { field, to: FieldType::try_from(&to)? }
        }
        Step::SetDefault(proto::SetDefault { field, default }) => {
            EvolutionStep::SetDefault { field, default: value_from_proto(default)? }
        }
        Step::MakeOptional(field) => EvolutionStep::MakeOptional { field },
        Step::MakeRequired(field) => EvolutionStep::MakeRequired { field },
    })
}

/// The message of an answer.
///
/// # Errors
/// [`ErrorKind::TooLarge`](model::ErrorKind::TooLarge) if a default is too large to be encoded.
pub fn schema_answer_to_proto(answer: &SchemaAnswer) -> Result<proto::Described> {
    let index = |index: &Index| proto::Index {
        id: index.id.0,
        name: index.name.clone(),
        class: index.class.0,
        fields: index.fields.iter().map(|field| field.0).collect(),
        unique: index.unique,
        state: match index.state {
            IndexState::Building => proto::IndexState::Building,
            IndexState::Ready => proto::IndexState::Ready,
        }
        .into(),
        problem: index.flaw.clone(),
        job: index.job.map(|job| job.0),
    };
    Ok(proto::Described {
        classes: answer.classes.iter().map(TryFrom::try_from).collect::<Result<_>>()?,
        indexes: answer.indexes.iter().map(index).collect(),
    })
}

/// The answer of a message.
///
/// # Errors
/// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if an index is in a state that this version does not know, and the errors of
/// types and values.
pub fn schema_answer_from_proto(message: proto::Described) -> Result<SchemaAnswer> {
    let index = |index: proto::Index| {
        let state = match proto::IndexState::try_from(index.state) {
            Ok(proto::IndexState::Building) => IndexState::Building,
            Ok(proto::IndexState::Ready) => IndexState::Ready,
            Err(_) => return Err(invalid("an index is in a state that this version does not know")),
        };
        Ok(Index {
            id: IndexId(index.id),
            name: index.name,
            class: ClassId(index.class),
            fields: index.fields.into_iter().map(FieldNumber).collect(),
            unique: index.unique,
            state,
            flaw: index.problem,
            job: index.job.map(JobId),
        })
    };
    Ok(SchemaAnswer {
        classes: message.classes.into_iter().map(TryFrom::try_from).collect::<Result<_>>()?,
        indexes: message.indexes.into_iter().map(index).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use model::{Class, FieldDefinition, Value};

    use super::*;

    fn field() -> FieldDefinition {
        let field_type = FieldType::list(FieldType::Reference(Some("P".to_owned())));
        FieldDefinition { name: "f".to_owned(), field_type, optional: true, default: Some(Value::List(vec![])) }
    }

    #[test]
    fn requests_survive_the_wire() {
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let steps = vec![
            EvolutionStep::Add(field()),
            EvolutionStep::Remove { field: a.clone() },
            EvolutionStep::Rename { field: a.clone(), to: b.clone() },
            EvolutionStep::Widen { field: a.clone(), to: FieldType::Float64 },
            EvolutionStep::SetDefault { field: a.clone(), default: None },
            EvolutionStep::SetDefault { field: a.clone(), default: Some(Value::Int64(4)) },
            EvolutionStep::MakeOptional { field: a.clone() },
            EvolutionStep::MakeRequired { field: b.clone() },
        ];
        let class = |parent| ClassDefinition { name: a.clone(), parent, fields: vec![field()] };
        for request in [
            SchemaRequest::Show,
            SchemaRequest::History { class: a.clone() },
            SchemaRequest::Define { classes: vec![class(None), class(Some(b.clone()))] },
            SchemaRequest::Evolve { class: a.clone(), steps },
            SchemaRequest::CreateIndex { name: a.clone(), class: b.clone(), fields: vec![a.clone()], unique: true },
            SchemaRequest::RemoveIndex { name: b.clone() },
        ] {
            let message = schema_request_to_proto("main", &request).unwrap();
            assert_eq!(message.space, "main");
            assert_eq!(schema_request_from_proto(message.request).unwrap(), request);
        }
    }

    #[test]
    fn answers_survive_the_wire() {
        let index = |state, flaw: Option<&str>| Index {
            id: IndexId(3),
            name: "by_f".to_owned(),
            class: ClassId(7),
            fields: vec![FieldNumber(2), FieldNumber(1)],
            unique: flaw.is_some(),
            state,
            flaw: flaw.map(str::to_owned),
            job: flaw.map(|_| JobId(9)),
        };
        let indexes = vec![index(IndexState::Building, Some("two objects have 4")), index(IndexState::Ready, None)];
        let classes = vec![Class::new(ClassId(7), "P").field(1, "n", FieldType::Int64)];
        let answer = SchemaAnswer { classes, indexes };
        assert_eq!(schema_answer_from_proto(schema_answer_to_proto(&answer).unwrap()).unwrap(), answer);
    }

    #[test]
    fn incomplete_messages_are_refused() {
        let evolve = |step| {
            let steps = vec![proto::EvolutionStep { step }];
            Some(Request::Evolve(proto::Evolve { class: String::new(), steps }))
        };
        let indexes = vec![proto::IndexDefinition::default()];
        let classes = vec![proto::ClassDefinition { indexes, ..Default::default() }];
        for request in [
            None,
            evolve(None),
            evolve(Some(Step::Add(Default::default()))),
            evolve(Some(Step::Widen(proto::WidenField::default()))),
            Some(Request::CreateIndex(proto::CreateIndex::default())),
            Some(Request::Define(proto::Define { classes })),
        ] {
            assert!(schema_request_from_proto(request.clone()).is_err(), "{request:?}");
        }
        let indexes = vec![proto::Index { state: 9, ..Default::default() }];
        assert!(schema_answer_from_proto(proto::Described { indexes, ..Default::default() }).is_err());
    }
}
