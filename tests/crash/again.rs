//! A question that is asked again: with one save it leaves the transcript and waits for its new answer. Wherever that is
//! cut, the question is there, and what had answered it is there or kept.

use lastword::storage::Disk;
use lastword::storage::sim::SimDisk;
use lastword::{Again, List, RunId, Store, StoreError, UserTurn};

use crate::machine::{ended, id, open, operations_of, prepared};
use crate::told::Told;

fn two_turns(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    told.create(store)?;
    told.turn(store, "r1", 2)?;
    told.turn(store, "r2", 2)
}

fn last_question(store: &Store) -> Result<String, StoreError> {
    let session = store.get_session(&id())?;
    let asked = session.messages().rfind(|row| row.role() == "user").unwrap();
    Ok(asked.content().into_owned())
}

fn ask_again(store: &Store, _: &mut Told) -> Result<(), StoreError> {
    let question = last_question(store)?;
    let turn = UserTurn { again: Some(Again::Last), ..UserTurn::text(&question).with_run(RunId::parse("r3").unwrap()) };
    store.begin_run(&id(), turn).map(drop)
}

fn kept(disk: &SimDisk) -> usize {
    disk.read_dir(std::path::Path::new("/data/_kept/s")).map_or(0, |entries| entries.len())
}

#[test]
fn a_question_asked_again_is_never_lost_wherever_that_is_cut() {
    let (fresh, told) = prepared(two_turns);
    let (question, rows) = {
        let store = open(&fresh).unwrap();
        (last_question(&store).unwrap(), store.get_session(&id()).unwrap().len(List::Messages))
    };
    let (mut before, mut behind) = (0, 0);
    for operation in 0..=operations_of(two_turns, ask_again) {
        let (disk, mut told) = (fresh.copy(), told.clone());
        disk.stop_before(disk.operations() + operation);
        let asked = open(&disk).and_then(|store| ask_again(&store, &mut told));
        for (end, disk) in ended(&disk) {
            let session = open(&disk).unwrap().get_session_for_scan(&id()).unwrap();
            let context = format!("{end:?} before operation {operation}");
            match session.pending_turn() {
                Some(pending) => {
                    behind += 1;
                    assert_eq!(
                        (pending.message.as_str(), session.len(List::Messages)),
                        (question.as_str(), rows - 2),
                        "{context}"
                    );
                    assert!(kept(&disk) >= 1, "the old answer is not kept: {context}");
                }
                None => {
                    before += 1;
                    assert!(asked.is_err(), "it was acknowledged and is gone: {context}");
                    assert_eq!(session.len(List::Messages), rows, "{context}");
                }
            }
        }
    }
    assert!(before > 0 && behind > 0, "{before} {behind}");
}
