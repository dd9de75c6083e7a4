//! Stores the generated modules.
//!
//! The atomic parts of a composite part, their connections and its document are created in one transaction, so that they share pages. A
//! transaction creates about [`PORTION`] objects; the assemblies of a module are created in one.

use client::{Error, ErrorKind, Oid, Ref, Result, SpaceId};
use model::{ClassId, NodeId, PageId};

use super::design::Design;
use super::generate::{AssemblyData, CompositePartData, LEAST_DATE, ModuleData, title_of};
use super::model::{
    Assembly, AtomicPart, BaseAssembly, ComplexAssembly, CompositePart, Connection, Document, Manual, Module,
};
use super::objects::{Database, Objects};

/// Objects of one transaction.
const PORTION: usize = 2_000;

/// Stores all modules of a database. `progress` is told how many composite parts of how many are stored.
pub(crate) async fn load(database: &impl Database, design: &Design, progress: impl Fn(usize, usize)) -> Result<()> {
    let mut stored = 0;
    for number in 1..=design.modules {
        let data = ModuleData::generate(design, number);
        let mut parts = Vec::new();
        for portion in data.composite_parts.chunks(composite_parts_of_portion(design)) {
            parts.extend(database.transact(async |objects| create_parts(objects, design, portion).await).await?);
            stored += portion.len();
            progress(stored, design.all_composite_parts());
        }
        database.transact(async |objects| create_module(objects, design, &data, &parts).await).await?;
    }
    Ok(())
}

/// Composite parts of one transaction.
fn composite_parts_of_portion(design: &Design) -> usize {
    let objects = 2 + design.atomic_parts * (1 + design.connections);
    (PORTION / objects).max(1)
}

async fn create_parts(
    objects: &impl Objects,
    design: &Design,
    portion: &[CompositePartData],
) -> Result<Vec<Ref<CompositePart>>> {
    let mut created = Vec::with_capacity(portion.len());
    for data in portion {
        created.push(create_part(objects, design, data).await?);
    }
    Ok(created)
}

/// Creates a composite part with all that belongs to it.
async fn create_part(objects: &impl Objects, design: &Design, data: &CompositePartData) -> Result<Ref<CompositePart>> {
    let CompositePartData { id, kind, build_date, .. } = data;
    let value = CompositePart {
        id: *id,
        kind: kind.clone(),
        build_date: *build_date,
        documentation: placeholder_ref(),
        root_part: placeholder_ref(),
        parts: vec![placeholder_ref(); data.parts.len()],
        used_in: Vec::new(),
    };
    let part = objects.create(value).await?;
    let atomic_parts = create_graph(objects, data, part).await?;
    let line = format!("I am the documentation for composite part #{id:08}.\n");
    let document = Document { id: *id, title: title_of(*id), text: text(&line, design.document_bytes), part };
    let document = objects.create(document).await?;
    let complete = |part: &mut CompositePart| {
        part.documentation = document;
        part.root_part = atomic_parts[0];
        part.parts = atomic_parts;
    };
    objects.update(part, complete).await?;
    Ok(part)
}

/// Creates the atomic parts and the connections of a composite part.
async fn create_graph(
    objects: &impl Objects,
    data: &CompositePartData,
    part_of: Ref<CompositePart>,
) -> Result<Vec<Ref<AtomicPart>>> {
    let mut parts = Vec::with_capacity(data.parts.len());
    for (index, part) in data.parts.iter().enumerate() {
        let incoming = data.parts.iter().flat_map(|part| &part.targets).filter(|target| **target == index).count();
        let value = AtomicPart {
            id: part.id,
            kind: part.kind.clone(),
            build_date: part.build_date,
            x: part.x,
            y: part.y,
            document_id: part.document_id,
            part_of,
            outgoing: vec![placeholder_ref(); part.targets.len()],
            incoming: vec![placeholder_ref(); incoming],
        };
        parts.push(objects.create(value).await?);
    }
    let mut outgoing = vec![Vec::new(); parts.len()];
    let mut incoming = vec![Vec::new(); parts.len()];
    for (source, data_of_source) in data.parts.iter().enumerate() {
        for (number, target) in data_of_source.targets.iter().copied().enumerate() {
            let value = Connection {
                id: (data_of_source.id - 1) * data_of_source.targets.len() as i64 + number as i64 + 1,
                kind: data_of_source.kind.clone(),
                length: (data_of_source.x - data.parts[target].x).abs() + 1,
                source: parts[source],
                target: parts[target],
            };
            let connection = objects.create(value).await?;
            outgoing[source].push(connection);
            incoming[target].push(connection);
        }
    }
    for ((part, outgoing), incoming) in parts.iter().zip(outgoing).zip(incoming) {
        objects.update(*part, |part| (part.outgoing, part.incoming) = (outgoing, incoming)).await?;
    }
    Ok(parts)
}

/// Creates a module with its manual and its assemblies.
async fn create_module(
    objects: &impl Objects,
    design: &Design,
    data: &ModuleData,
    parts: &[Ref<CompositePart>],
) -> Result<()> {
    let id = i64::from(data.number);
    let value = Module {
        id,
        kind: "type000".to_owned(),
        build_date: LEAST_DATE,
        manual: placeholder_ref(),
        design_root: placeholder_ref(),
    };
    let module = objects.create(value).await?;
    let line = format!("I am the manual for module #{id:08}.\n");
    let title = format!("Manual for module #{id:08}");
    let manual = objects.create(Manual { id, title, text: text(&line, design.manual_bytes), module }).await?;
    let design_root = create_assemblies(objects, data, module, parts).await?;
    objects.update(module, |module| (module.manual, module.design_root) = (manual, design_root)).await?;
    objects.name_module(data.number, module).await
}

/// Creates the assemblies of a module. Returns the root.
async fn create_assemblies(
    objects: &impl Objects,
    data: &ModuleData,
    module: Ref<Module>,
    parts: &[Ref<CompositePart>],
) -> Result<Ref<ComplexAssembly>> {
    // The complex assemblies by index; a base assembly has none below it.
    let mut complex: Vec<Option<Ref<ComplexAssembly>>> = Vec::with_capacity(data.assemblies.len());
    for assembly in &data.assemblies {
        let super_assembly = assembly.parent.and_then(|parent| complex[parent]);
        let value = assembly_value(assembly, module, super_assembly);
        complex.push(match &assembly.components {
            None => Some(create_complex_assembly(objects, value).await?),
            Some(components) => {
                create_base_assembly(objects, value, components.iter().map(|part| parts[*part]).collect()).await?;
                None
            }
        });
    }
    complex[0].ok_or_else(|| Error::new(ErrorKind::Invalid, "a module has at least two levels of assemblies"))
}

fn assembly_value(data: &AssemblyData, module: Ref<Module>, super_assembly: Option<Ref<ComplexAssembly>>) -> Assembly {
    Assembly { id: data.id, kind: data.kind.clone(), build_date: data.build_date, module, super_assembly }
}

async fn create_complex_assembly(objects: &impl Objects, assembly: Assembly) -> Result<Ref<ComplexAssembly>> {
    let super_assembly = assembly.super_assembly;
    let value = ComplexAssembly { assembly, sub_assemblies: Vec::new(), base_assemblies: Vec::new() };
    let created = objects.create(value).await?;
    if let Some(above) = super_assembly {
        objects.update(above, |above| above.sub_assemblies.push(created)).await?;
    }
    Ok(created)
}

async fn create_base_assembly(
    objects: &impl Objects,
    assembly: Assembly,
    components: Vec<Ref<CompositePart>>,
) -> Result<()> {
    let super_assembly = assembly.super_assembly;
    let created = objects.create(BaseAssembly { assembly, components: components.clone() }).await?;
    if let Some(above) = super_assembly {
        objects.update(above, |above| above.base_assemblies.push(created)).await?;
    }
    for part in components {
        objects.update(part, |part| part.used_in.push(created)).await?;
    }
    Ok(())
}

/// A reference that is set before the commit. It has the final size, so that objects do not outgrow the page in which they are placed.
fn placeholder_ref<T>() -> Ref<T> {
    let page = PageId { space: SpaceId(0), node: NodeId(0), number: 0 };
    Ref::new(Oid::new(ClassId(1), page, 0))
}

/// A line, repeated up to this many bytes.
fn text(line: &str, bytes: usize) -> String {
    line.chars().cycle().take(bytes).collect()
}
