//! Turns that were to replace others when their process died: a repair decides as a live read does, and stores the branch first.

use lastword::doctor::Code;
use lastword::{Event, Outcome, Replaces, UserTurn};

use crate::data::{Data, NOW, contents, copy_of, rid, sid};
use crate::repairs::assert_nothing_is_left_to_do;

/// The second answer of `talk` is given again, and the process dies.
fn cut(is_sealed: bool) -> Data {
    let data = Data::healthy();
    let store = data.store();
    let turn = UserTurn { replaces: Some(Replaces::Answer("run-1".to_owned())), ..UserTurn::default() };
    let run = store.begin_run(&sid("talk"), turn.with_run(rid("run-3"))).unwrap();
    run.append(Event::token("by bus")).unwrap();
    if is_sealed {
        let before = data.read("talk.json");
        run.finish(Outcome::Completed).unwrap();
        drop((run, store));
        data.put("talk.json", &before);
        data.remove("_branches/talk/run-3.json");
        data.remove("_sessions.index");
    }
    data.set_clock(NOW + 60);
    data
}

#[test]
fn a_repair_decides_which_of_two_turns_stays_as_a_read_does() {
    for is_sealed in [false, true] {
        let data = cut(is_sealed);
        assert!(data.findings().iter().any(|finding| finding.code == Code::PendingTurn), "{is_sealed}");
        let by_read = copy_of(&data);
        by_read.set_clock(NOW + 60);
        let read = by_read.store();
        let session = read.get_session(&sid("talk")).unwrap();
        let said: Vec<String> = session.messages().map(|row| row.content().into_owned()).collect();
        data.repair();
        assert_eq!(contents(&data.sidecar("talk.json")), said, "{is_sealed}");
        assert_eq!(said.len(), if is_sealed { 2 } else { 4 });
        assert_eq!(said[1] == "by bus", is_sealed);
        assert_eq!(data.read("_branches/talk/run-3.json"), by_read.read("_branches/talk/run-3.json"), "{is_sealed}");
        assert_nothing_is_left_to_do(&data, "a turn that was replaced");
        let branches = data.store().branches(&sid("talk")).unwrap();
        assert_eq!((branches.len(), branches[0].rows), (1, if is_sealed { 4 } else { 3 }));
    }
}
