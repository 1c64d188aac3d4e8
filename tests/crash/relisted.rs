//! A list of withheld lines that can be read again, while lines of another run are in the log alone.

use lastword::Event;
use lastword::storage::sim::{Crash, SimDisk};

use crate::ledger::{run_id, session_id};
use crate::logged::{ALL, layout, texts};
use crate::machine::open;
use crate::withheld::with_nowhere_to_keep;

/// The events of `a` are in the log alone. Those of `b` are in its records, and the list that names them cannot be read.
fn with_unreadable_list() -> SimDisk {
    let disk = with_nowhere_to_keep();
    disk.set_mode(layout().journal(&session_id("b"), &run_id("r")), 0o400).unwrap();
    drop(open(&disk).unwrap());
    disk.kill();
    disk.break_reads(layout().withheld_list()).unwrap();
    disk
}

/// Otherwise it would take events in the places of acknowledged ones.
#[test]
fn a_run_whose_events_are_in_the_log_alone_is_not_forgotten_when_the_list_can_be_read_again() {
    let disk = with_unreadable_list();
    let store = open(&disk).unwrap();
    let is_withheld = |name: &str| {
        let refused = store.resume_run(&session_id(name), &run_id("r")).unwrap_err();
        assert_eq!(refused.code(), "withheld", "{name}: {refused:?}");
    };
    ["a", "b"].into_iter().for_each(is_withheld);
    disk.mend_reads(layout().withheld_list()).unwrap();
    ["a", "b"].into_iter().for_each(is_withheld);
    for name in ["a", "b"] {
        assert_eq!(texts(&store, name), ALL, "{name}");
        disk.set_mode(layout().journal(&session_id(name), &run_id("r")), 0o600).unwrap();
        let run = store.resume_run(&session_id(name), &run_id("r")).unwrap();
        let appended = run.append_durable(Event::token("four")).unwrap();
        assert_eq!(appended.last_seq, 4, "{name}: the number of an acknowledged event is given again");
        appended.wait().unwrap();
    }
    drop(store);
    disk.power_cut(Crash::LoseAll);
    let store = open(&disk).unwrap();
    for name in ["a", "b"] {
        assert_eq!(texts(&store, name), [ALL[0], ALL[1], ALL[2], "\"four\""], "{name}");
    }
}
