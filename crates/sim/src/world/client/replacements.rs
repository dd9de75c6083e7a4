//! Steps that replace the members of sets: a member is removed and another one inserted, or written over it; and a new member, of another class
//! if there is one, takes the place of a removed one.
//!
//! In histories a member that is removed has a successor in the same set ([`check::history::Replacements`]).

use check::history;
use model::{ClassId, Object, Oid};
use protocol::ident::TxnId;
use protocol::locks::LockMode;

use crate::object::Content;
use crate::plan::Key;
use crate::program::TEXTS;
use crate::world::World;
use crate::world::member_journal::key_of;
use crate::world::net::Pid;

/// In one of so many replacements the new member is written over the old one.
const OVERWRITES: u64 = 3;

impl World {
    /// Replaces a member by another one. Says whether there may be another step.
    pub(super) fn replace_member(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        let Some(number) = self.current_mut(pid).map(|current| current.record.number) else { return false };
        let Some(oid) = self.written_member(guard, number) else { return self.end_without_member(pid) };
        let place = match number.is_multiple_of(OVERWRITES) {
            true => oid,
            false => {
                let (class, key) = (self.schema.member_class(guard, number), guard.member(number));
                Oid::new(class, key.page(), key.slot)
            }
        };
        let Some(object) = self.encode_new_member(pid, guard, place.class()) else { return false };
        let before = match self.read_member(pid, txn, oid) {
            Ok(before) => before,
            Err(goes_on) => return goes_on,
        };
        match self.read_all(pid, txn, &[(place, LockMode::Exclusive)]) {
            Some(true) => {}
            Some(false) => return false,
            None => return true,
        }
        let Some((before, former)) = before.and_then(|before| Content::number(&before).map(|number| (before, number)))
        else {
            return self.skip_step(pid);
        };
        self.note_ended(guard, oid, former, &before);
        if place != oid {
            self.write_member(pid, txn, oid, None);
        }
        self.insert_member(pid, txn, (guard, place), object);
        let Some(current) = self.current_mut(pid) else { return false };
        current.record.steps.push(history::Step::append(history::member(&guard.to_string(), former), number as i64));
        self.count.replaced += 1;
        self.skip_step(pid)
    }

    /// Inserts a member in the place of a removed one. Says whether there may be another step.
    pub(super) fn reuse_place(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        let Some(number) = self.current_mut(pid).map(|current| current.record.number) else { return false };
        let reused = self.current_mut(pid).and_then(|current| current.reused);
        let Some(former) = reused.or_else(|| self.member_journal.take_free(guard, number)) else {
            return self.end_without_member(pid);
        };
        self.current_mut(pid).into_iter().for_each(|current| current.reused = Some(former));
        let place = Oid::new(self.next_class(guard, former.class()), former.page(), former.slot());
        let Some(object) = self.encode_new_member(pid, guard, place.class()) else { return false };
        match self.read_member(pid, txn, place) {
            Ok(None) => {}
            // The removal was not known here.
            Ok(Some(_)) => return self.end_without_member(pid),
            Err(goes_on) => return goes_on,
        }
        self.member_journal.note_ended(former, []);
        self.member_journal.note_ended(place, []);
        self.insert_member(pid, txn, (guard, place), object);
        self.count.reused += 1;
        self.skip_step(pid)
    }

    /// The class behind another one in the family of a set's class.
    fn next_class(&self, guard: Key, class: ClassId) -> ClassId {
        let family: Vec<ClassId> = self.schema.family(guard.set_class()).collect();
        let at = family.iter().position(|one| *one == class).unwrap_or_default();
        family[(at + 1) % family.len()]
    }

    fn insert_member(&mut self, pid: Pid, txn: TxnId, (guard, place): (Key, Oid), object: Object) {
        let number = Content::number(&object).unwrap_or_default();
        self.write_member(pid, txn, place, Some(object));
        if let Some(current) = self.current_mut(pid) {
            current.record.steps.push(history::Step::append(guard.to_string(), number));
        }
    }

    /// A member may not be there from now on, with all that is in its texts.
    fn note_ended(&mut self, guard: Key, oid: Oid, member: i64, object: &Object) {
        let key = key_of(oid);
        let first = |text| {
            let value = self.stored_text(guard, object, text)?;
            let first = self.member_journal.elements((key, member), text, &value).ok()?.first().copied()?;
            Some(history::member(&guard.touched_name(text), first))
        };
        let texts: Vec<String> = (0..TEXTS).filter_map(first).collect();
        self.member_journal.note_ended(oid, texts);
    }
}
