//! The control: the same objects as structs in memory, in the same process. It has no transactions, no cache and no index but the order of
//! identifiers.

use std::cell::{self, RefCell};
use std::ops::Deref;

use client::{Error, ErrorKind, Oid, Persistent, Ref, Result, SpaceId};
use model::{ClassId, NodeId, PageId};

use super::model::{AtomicPart, BaseAssembly, ComplexAssembly, CompositePart, Connection, Document, Manual, Module};
use super::objects::{Database, Objects};

/// The objects of each class, in the order of their creation. A reference has the index as the number of its page.
#[derive(Debug, Default)]
pub(crate) struct Control {
    modules: Table<Module>,
    manuals: Table<Manual>,
    complex_assemblies: Table<ComplexAssembly>,
    base_assemblies: Table<BaseAssembly>,
    composite_parts: Table<CompositePart>,
    documents: Table<Document>,
    atomic_parts: Table<AtomicPart>,
    connections: Table<Connection>,
    /// The modules by number, from 1 on.
    named: RefCell<Vec<Ref<Module>>>,
}

type Table<T> = RefCell<Vec<T>>;

/// A class of OO7.
pub(crate) trait Stored: Persistent {
    /// The objects of this class in the control.
    fn table(control: &Control) -> &Table<Self>;
}

macro_rules! stored {
    ($($class:ty => $table:ident),* $(,)?) => {
        $(impl Stored for $class {
            fn table(control: &Control) -> &Table<Self> {
                &control.$table
            }
        })*
    };
}

stored! {
    Module => modules,
    Manual => manuals,
    ComplexAssembly => complex_assemblies,
    BaseAssembly => base_assemblies,
    CompositePart => composite_parts,
    Document => documents,
    AtomicPart => atomic_parts,
    Connection => connections,
}

impl Control {
    fn borrow<T: Stored>(&self) -> Result<cell::Ref<'_, Vec<T>>> {
        T::table(self).try_borrow().map_err(|_| in_use_error::<T>())
    }

    /// The object that `index` finds in its table.
    fn at<T: Stored>(&self, index: impl FnOnce(&[T]) -> Option<usize>) -> Result<cell::Ref<'_, T>> {
        let table = self.borrow::<T>()?;
        let index = index(&table).filter(|index| *index < table.len()).ok_or_else(not_found_error::<T>)?;
        Ok(cell::Ref::map(table, |table| &table[index]))
    }

    /// The objects of a class for which `is_wanted` holds.
    fn filter<T: Stored>(&self, is_wanted: impl Fn(&T) -> bool) -> Result<Vec<cell::Ref<'_, T>>> {
        let table = self.borrow::<T>()?;
        let wanted = (0..table.len()).filter(|index| is_wanted(&table[*index]));
        Ok(wanted.map(|index| cell::Ref::map(cell::Ref::clone(&table), |table| &table[index])).collect())
    }
}

impl Database for Control {
    type Objects = Self;

    async fn transact<T>(&self, body: impl AsyncFn(&Self) -> Result<T>) -> Result<T> {
        body(self).await
    }

    async fn traverse<T>(&self, body: impl AsyncFn(&Self) -> Result<T>) -> Result<T> {
        body(self).await
    }
}

impl Objects for Control {
    async fn get<T: Stored>(&self, reference: Ref<T>) -> Result<impl Deref<Target = T>> {
        self.at(|_| Some(index_of(reference)))
    }

    async fn update<T: Stored>(&self, reference: Ref<T>, change: impl FnOnce(&mut T)) -> Result<()> {
        let mut table = T::table(self).try_borrow_mut().map_err(|_| in_use_error::<T>())?;
        change(table.get_mut(index_of(reference)).ok_or_else(not_found_error::<T>)?);
        Ok(())
    }

    async fn create<T: Stored>(&self, value: T) -> Result<Ref<T>> {
        let mut table = T::table(self).try_borrow_mut().map_err(|_| in_use_error::<T>())?;
        table.push(value);
        Ok(reference_to(table.len() - 1))
    }

    async fn name_module(&self, number: u32, module: Ref<Module>) -> Result<()> {
        let mut named = self.named.borrow_mut();
        assert_eq!(named.len() + 1, number as usize, "modules are named in the order of their numbers");
        named.push(module);
        Ok(())
    }

    async fn module(&self, number: u32) -> Result<Ref<Module>> {
        self.named.borrow().get(number as usize - 1).copied().ok_or_else(not_found_error::<Module>)
    }

    async fn atomic_part(&self, id: i64) -> Result<impl Deref<Target = AtomicPart>> {
        self.at(|parts: &[AtomicPart]| parts.binary_search_by_key(&id, |part| part.id).ok())
    }

    async fn atomic_parts_since(&self, date: i64) -> Result<Vec<impl Deref<Target = AtomicPart>>> {
        self.filter(|part: &AtomicPart| part.build_date >= date)
    }

    async fn document(&self, title: &str) -> Result<impl Deref<Target = Document>> {
        self.at(|documents: &[Document]| documents.binary_search_by(|document| document.title.as_str().cmp(title)).ok())
    }

    async fn all<T: Stored>(&self) -> Result<Vec<impl Deref<Target = T>>> {
        self.filter(|_: &T| true)
    }
}

fn reference_to<T>(index: usize) -> Ref<T> {
    let page = PageId { space: SpaceId(0), node: NodeId(0), number: index as u64 };
    Ref::new(Oid::new(ClassId(1), page, 0))
}

fn index_of<T>(reference: Ref<T>) -> usize {
    reference.oid().page().number as usize
}

fn not_found_error<T: Persistent>() -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no such {}", T::CLASS))
}

fn in_use_error<T: Persistent>() -> Error {
    Error::new(ErrorKind::Invalid, format!("an object of class {} is in use", T::CLASS))
}
