//! The table: who has a page, and what he finds of the one before.

use super::{Memory, Model, check};
use loom::thread;
use pontoon_smc::table::{Claim, PageId, SlotIndex, State, Table};
use std::sync::Arc;

pub(crate) const MODELS: &[Model] = &[
    ("a_page_is_claimed_once", a_page_is_claimed_once),
    ("a_slot_that_is_free_again_is_done_with", a_slot_that_is_free_again_is_done_with),
    ("the_free_slots_are_a_list", the_free_slots_are_a_list),
    ("who_holds_a_slot_sees_what_the_last_did", who_holds_a_slot_sees_what_the_last_did),
];

const ID: PageId = PageId::new(0, 5);

fn mine(table: &Table, id: PageId) -> SlotIndex {
    match table.claim(id) {
        Claim::Mine(slot) => slot,
        claim => panic!("{claim:?}"),
    }
}

/// SYNC(smc-bucket): of two that ask for a page at once one fetches it, and the other finds it.
fn a_page_is_claimed_once() {
    check(3, || {
        let table = Arc::new(Table::new(2).unwrap());
        let other = thread::spawn({
            let table = Arc::clone(&table);
            move || table.claim(ID)
        });
        let claims = [table.claim(ID), other.join().unwrap()];
        let fetching = claims.iter().filter(|claim| matches!(claim, Claim::Mine(_))).count();
        assert_eq!(fetching, 1, "{claims:?}");
    });
}

/// SYNC(smc-free): who gets a slot that another gave back has it after that one is done with it.
fn a_slot_that_is_free_again_is_done_with() {
    check(3, || {
        let table = Arc::new(Table::new(1).unwrap());
        let memory = Memory::new();
        let slot = mine(&table, ID);
        let other = thread::spawn({
            let (table, memory) = (Arc::clone(&table), memory.clone());
            move || {
                memory.write(7);
                table.forget(ID, slot);
                table.give_back(slot);
            }
        });
        match table.claim(PageId::new(0, 6)) {
            Claim::Mine(_) => assert_eq!(memory.read(), 7),
            claim => assert!(matches!(claim, Claim::NoSlot | Claim::Crowded), "{claim:?}"),
        }
        other.join().unwrap();
    });
}

/// SYNC(smc-free): slots that are given back while others are taken are each there once.
fn the_free_slots_are_a_list() {
    check(3, || {
        let table = Arc::new(Table::new(3).unwrap());
        let slot = mine(&table, ID);
        let other = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                table.forget(ID, slot);
                table.give_back(slot);
            }
        });
        let mut taken: Vec<_> = (6..8).map(|page| mine(&table, PageId::new(0, page)).0).collect();
        other.join().unwrap();
        taken.push(mine(&table, PageId::new(0, 8)).0);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        assert_eq!(table.claim(PageId::new(0, 9)), Claim::NoSlot);
    });
}

/// SYNC(smc-slot): who takes hold of a resident page sees what the last holder made of its twin.
fn who_holds_a_slot_sees_what_the_last_did() {
    check(3, || {
        let table = Arc::new(Table::new(1).unwrap());
        let memory = Memory::new();
        let slot = mine(&table, ID);
        let other = thread::spawn({
            let (table, memory) = (Arc::clone(&table), memory.clone());
            move || {
                memory.write(7);
                table.set(slot, State::Resident);
            }
        });
        if table.turn(slot, ID, State::Resident, State::Busy) {
            assert_eq!(memory.read(), 7);
        }
        other.join().unwrap();
    });
}
