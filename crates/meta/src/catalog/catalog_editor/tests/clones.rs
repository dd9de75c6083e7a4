use model::{ClassDefinition, FieldDefinition, FieldType, NodeId, Value};

use super::jobs::peer;
use super::*;
use crate::catalog::{
    Edited, IndexState, Job, JobKind, JobProgress, JobState, JobWorker, PartReport, SpaceChange, SpaceSnapshot,
};

/// A space with a class, whose default refers to an object, a ready index and one that is being built.
async fn with_classes() -> CatalogEditor {
    let editor = with_space().await;
    let page = model::PageId { space: SpaceId(1), node: NodeId(2), number: 7 };
    let first = model::Oid::new(model::ClassId(1), page, 3);
    let reference = FieldType::Reference(Some("Person".to_owned()));
    let boss = FieldDefinition {
        default: Some(Value::Reference(first)),
        optional: true,
        ..FieldDefinition::required("boss", reference)
    };
    let fields = vec![FieldDefinition::required("name", FieldType::String), boss];
    editor.define("main", &[ClassDefinition { name: "Person".to_owned(), parent: None, fields }]).await.unwrap();
    let ready = editor.create_index("main", "by_name", "Person", &["name"], true).await.unwrap().value;
    editor.record_index_build("main", "by_name", ready.id, None).await.unwrap();
    editor.create_index("main", "by_boss", "Person", &["boss"], false).await.unwrap();
    editor
}

async fn moment(editor: &CatalogEditor, job: &Job, worker: JobWorker) -> Result<SpaceSnapshot> {
    SpaceSnapshot::new(&editor.store().read(Prefix::all()).await.unwrap(), job, worker)
}

async fn begin(editor: &CatalogEditor, worker: JobWorker) -> Job {
    let job = editor.begin_clone("main", "copy", Some(7)).await.unwrap().value;
    editor.claim_job_part(job.id, 0, worker).await.unwrap();
    job
}

async fn finish(editor: &CatalogEditor, job: &Job, worker: JobWorker, moment: &SpaceSnapshot) -> Result<Edited<Job>> {
    editor.finish_clone(job.id, worker, (moment, 1_234), JobProgress::default()).await
}

fn place_of(job: &Job) -> (SpaceId, NodeId, u32) {
    match job.kind {
        JobKind::Clone { clone, first_node, nodes, .. } => (clone, first_node, nodes),
        _ => panic!("{job:?} makes a clone"),
    }
}

#[tokio::test]
async fn a_clone_is_a_read_only_space_where_the_logical_nodes_were_with_the_classes_of_its_moment() {
    let editor = with_classes().await;
    let (worker, _lives) = peer(&editor, 1).await;
    let job = begin(&editor, worker).await;
    let (id, first, nodes) = place_of(&job);
    let moment = moment(&editor, &job, worker).await.unwrap();
    // What is defined later is not in it.
    let later = ClassDefinition { name: "Later".to_owned(), parent: None, fields: Vec::new() };
    editor.define("main", &[later]).await.unwrap();
    // The quota of the space at the end holds for the clone, too: it may be made writable.
    let quota = SpaceChange { max_objects: Some(Some(9)), ..SpaceChange::default() };
    editor.change_space("main", quota).await.unwrap();
    let ended = finish(&editor, &job, worker, &moment).await.unwrap().value;
    assert_eq!(ended.state, JobState::Done);
    let catalog = catalog(&editor).await;
    let (main, copy) = (catalog.space("main").unwrap(), catalog.space("copy").unwrap());
    assert_eq!((copy.id, copy.first_node, copy.nodes, copy.read_only), (id, first, nodes, true));
    let origin = copy.clone_of.as_ref().unwrap();
    assert_eq!((origin.space.as_str(), origin.at_ms, &copy.permissions), ("main", 1_234, &main.permissions));
    assert_eq!((copy.quota.max_objects, copy.quota.max_bytes), (Some(9), None));
    for (node, cloned) in main.node_ids().zip(copy.node_ids()) {
        let (was, is) = (catalog.node_placement(node).unwrap(), catalog.node_placement(cloned).unwrap());
        assert!((was.brick, was.moves) == (is.brick, is.moves) && is.epoch > was.epoch);
    }
    let schema = catalog.schema(copy.id);
    let person = schema.class_named("Person").unwrap();
    assert!(schema.class_named("Later").is_none());
    let Some(Value::Reference(default)) = person.field("boss").unwrap().default.clone() else {
        panic!("the class has its default")
    };
    assert_eq!((default.space(), default.page().node), (id, NodeId(first.0 + 2 - main.first_node.0)));
    let indexes: Vec<_> = schema.indexes().map(|index| (index.name.as_str(), index.state, index.job)).collect();
    assert_eq!(indexes, [("by_name", IndexState::Ready, None)]);
    // Numbers of its classes and indexes follow those that it has.
    let new = ClassDefinition { name: "New".to_owned(), parent: None, fields: Vec::new() };
    editor.define("copy", &[new]).await.unwrap();
    let index = editor.create_index("copy", "by_boss", "Person", &["boss"], false).await.unwrap().value;
    assert_eq!((index.id.0, super::catalog(&editor).await.schema(copy.id).classes().count()), (3, 2));
    // A repeated end, whose first answer was lost, changes nothing.
    assert_eq!(kind(finish(&editor, &job, worker, &moment).await), ErrorKind::Conflict);
    let schema = super::catalog(&editor).await.schema(copy.id);
    assert!(schema.class_named("New").is_some() && schema.index("by_boss").is_some());
}

#[tokio::test]
pub(crate) async fn logical_nodes_of_a_clone_that_is_given_up_are_those_of_a_removed_space() {
    let editor = with_classes().await;
    let (worker, _lives) = peer(&editor, 1).await;
    for is_cancelled in [true, false] {
        let job = begin(&editor, worker).await;
        let moment = moment(&editor, &job, worker).await.unwrap();
        match is_cancelled {
            true => drop(editor.cancel_job(job.id).await.unwrap()),
            false => {
                let failed = PartReport::Failed("no".to_owned());
                let state = (None, JobProgress::default());
                editor.report_job_part((job.id, 0), worker, state, failed).await.unwrap();
            }
        }
        let (_, first, nodes) = place_of(&job);
        let catalog = catalog(&editor).await;
        let is_it = |space: &&crate::catalog::RemovedSpace| (space.first_node, space.nodes) == (first, nodes);
        assert_eq!(catalog.removed_spaces().filter(is_it).count(), 1);
        assert_eq!(kind(finish(&editor, &job, worker, &moment).await), ErrorKind::Conflict);
        assert!(super::catalog(&editor).await.space("copy").is_none());
    }
    // A clone that is complete is not removed when its job is forgotten or cancelled late.
    let job = begin(&editor, worker).await;
    let moment = moment(&editor, &job, worker).await.unwrap();
    finish(&editor, &job, worker, &moment).await.unwrap();
    assert_eq!(kind(editor.cancel_job(job.id).await), ErrorKind::Conflict);
    assert_eq!(catalog(&editor).await.removed_spaces().count(), 2);
}

#[tokio::test]
async fn a_worker_that_has_lost_the_job_does_not_end_it() {
    let editor = with_space().await;
    let ((first, lives), (second, _lives)) = (peer(&editor, 1).await, peer(&editor, 2).await);
    let job = begin(&editor, first).await;
    let taken = moment(&editor, &job, first).await.unwrap();
    editor.store().end_session(lives.id).await.unwrap();
    editor.claim_job_part(job.id, 0, second).await.unwrap();
    assert_eq!(kind(finish(&editor, &job, first, &taken).await), ErrorKind::Conflict);
    assert_eq!(kind(moment(&editor, &job, first).await), ErrorKind::Conflict, "it begins no other attempt");
    finish(&editor, &job, second, &taken).await.unwrap();
    assert_eq!(kind(moment(&editor, &job, second).await), ErrorKind::Conflict);
}

#[tokio::test]
async fn clones_that_cannot_be_made_are_refused() {
    let editor = with_space().await;
    let (worker, _lives) = peer(&editor, 1).await;
    assert_eq!(kind(editor.begin_clone("nowhere", "copy", None).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.begin_clone("main", "main", None).await), ErrorKind::Exists);
    assert_eq!(kind(editor.begin_clone("main", "a/b", None).await), ErrorKind::Invalid);
    assert_eq!(kind(editor.begin_clone("main", "copy", Some(0)).await), ErrorKind::Invalid);
    let job = begin(&editor, worker).await;
    assert_eq!(kind(editor.begin_clone("main", "copy", None).await), ErrorKind::Exists, "another job makes it");
    // While a logical node moves, no moment is taken.
    let node = catalog(&editor).await.space("main").unwrap().first_node;
    let to = if catalog(&editor).await.node_placement(node).unwrap().brick == BrickId(1) { 2 } else { 1 };
    editor.begin_move(node, BrickId(to)).await.unwrap();
    assert_eq!(kind(moment(&editor, &job, worker).await), ErrorKind::Unavailable);
    editor.cancel_move(node).await.unwrap();
    let taken = moment(&editor, &job, worker).await.unwrap();
    // The name is taken by the time that it is complete.
    editor.create_space("copy", SpaceOptions::default()).await.unwrap();
    assert_eq!(kind(finish(&editor, &job, worker, &taken).await), ErrorKind::Exists);
    // The space is gone, or has an index whose values a clone cannot have.
    let fields = vec![FieldDefinition::required("of", FieldType::Reference(None))];
    editor.define("main", &[ClassDefinition { name: "Note".to_owned(), parent: None, fields }]).await.unwrap();
    let index = editor.create_index("main", "by_object", "Note", &["of"], true).await.unwrap().value;
    moment(&editor, &job, worker).await.unwrap();
    editor.record_index_build("main", "by_object", index.id, None).await.unwrap();
    assert!(moment(&editor, &job, worker).await.unwrap_err().to_string().contains("by_object"));
    editor.remove_space("main").await.unwrap();
    assert_eq!(kind(moment(&editor, &job, worker).await), ErrorKind::NotFound);
}
