//! The program is killed while its agent is at a certain stage, and stays there.

use crate::aftermath;
use crate::process::Process;
use crate::scene::{Scene, names, next_lines};
use crate::table::{Signal, is_alive, signal, wait_until};

/// A run that has come to a stage.
struct Staged {
    scene: Scene,
    run: Process,
    printed: Vec<String>,
}

impl Staged {
    /// Starts an agent that does this, and waits until these events are printed.
    fn begin(deed: &str, events: &[&str]) -> Self {
        let scene = Scene::with_agent(deed);
        let run = scene.start();
        let printed = next_lines(&run, events.len());
        assert_eq!(names(&printed), events);
        Staged { scene, run, printed }
    }

    /// The same, and waits until the agent is so far.
    fn reached(deed: &str, events: &[&str]) -> Self {
        let staged = Staged::begin(deed, events);
        staged.scene.wait_until_reached();
        staged
    }

    /// kill -9, to the program alone.
    fn kill(&mut self) {
        self.run.kill();
        wait_until("the program is gone", || !is_alive(self.run.id()));
    }

    /// Kills the program, whose agent lives on, and looks at what is left.
    fn check(mut self) {
        self.kill();
        assert!(!self.scene.survivors().is_empty(), "the agent lives on: nobody told it to end");
        self.check_killed();
    }

    fn check_killed(mut self) {
        self.printed.extend(self.run.end().lines);
        aftermath::check(&self.scene, &self.printed);
    }
}

#[test]
fn killed_before_the_first_event_the_prompt_is_kept() {
    Staged::reached("stay", &["attempt"]).check();
}

#[test]
fn killed_after_a_thought_the_thought_is_kept() {
    Staged::reached(r#"say reasoning '{"text":"Meer?"}'; stay"#, &["attempt", "reasoning"]).check();
}

#[test]
fn killed_after_words_the_words_are_kept() {
    Staged::reached("token 'Ans '; token Meer; stay", &["attempt", "token", "token"]).check();
}

#[test]
fn killed_in_the_middle_of_a_line_of_text_the_half_line_is_kept() {
    Staged::reached("printf 'Ans Me'; stay", &["attempt", "token"]).check();
}

#[test]
fn killed_while_a_tool_is_at_work_the_call_is_kept() {
    let deed = r#"token 'Ans '; say tool '{"tool_call_id":"t1","name":"map","preview":"Sète"}'; stay"#;
    Staged::reached(deed, &["attempt", "token", "tool"]).check();
}

#[test]
fn killed_between_two_attempts_no_attempt_follows() {
    let mut staged = Staged::begin("exit 75", &["attempt", "exit", "attempt_end"]);
    staged.kill();
    assert_eq!(staged.scene.work("r1").len(), 1);
    staged.check_killed();
}

#[test]
fn killed_after_the_agent_said_done_but_had_not_ended_the_answer_counts_as_interrupted() {
    let deed = "trap '' TERM; token 'Ans Meer.'; say done '{}'; stay";
    Staged::reached(deed, &["attempt", "token"]).check();
}

#[test]
fn killed_while_a_stopped_agent_takes_its_time_the_stop_is_kept() {
    let mut staged = Staged::reached("trap '' TERM; token Ans; stay", &["attempt", "token"]);
    signal(staged.run.id(), Signal::INT);
    staged.printed.extend(next_lines(&staged.run, 1));
    assert_eq!(names(&staged.printed)[2..], ["cancel"]);
    staged.check();
}

/// The agent is gone, and what it started holds its stdout and does not heed SIGTERM.
const LEAVES_A_CHILD: &str = "token Ans; (trap '' TERM; reached; exec sleep 600) & exit 0";

#[test]
fn killed_while_a_grandchild_holds_the_output_of_an_agent_that_has_ended_the_grandchild_is_reaped() {
    let staged = Staged::reached(LEAVES_A_CHILD, &["attempt", "token"]);
    let first = staged.scene.noted_group();
    wait_until("the agent is gone", || !is_alive(first));
    staged.check();
}

#[test]
fn an_agent_that_dies_behind_the_program_leaves_children_that_are_reaped_by_their_mark() {
    let deed = "(trap '' TERM; exec sleep 600) & token Ans; stay";
    let mut staged = Staged::reached(deed, &["attempt", "token"]);
    let first = staged.scene.noted_group();
    staged.kill();
    signal(first, Signal::KILL);
    wait_until("the agent is gone", || !is_alive(first));
    staged.check_killed();
}

#[test]
fn children_that_do_not_heed_sigterm_are_reaped_all_the_same() {
    let deed = "trap '' TERM; (sleep 600 & sleep 600) & token Ans; stay";
    let staged = Staged::reached(deed, &["attempt", "token"]);
    wait_until("all have started", || staged.scene.survivors().len() >= 4);
    staged.check();
}

#[test]
fn reading_ends_nobody() {
    let mut staged = Staged::reached("token Ans; stay", &["attempt", "token"]);
    staged.kill();
    let alive = staged.scene.survivors();
    staged.scene.data.must(&["tail", "trip", "r1"]);
    staged.scene.data.must(&["ls"]);
    // The agent may start another child meanwhile.
    let now = staged.scene.survivors();
    assert!(!alive.is_empty() && alive.iter().all(|process| now.contains(process)), "{alive:?}, then {now:?}");
    assert_eq!(staged.scene.notes().len(), 1);
    staged.check_killed();
}
