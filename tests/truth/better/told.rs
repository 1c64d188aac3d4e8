//! What a scenario told, step by step, and the questions that a check by hand asks of it. Answers that are not the
//! expected ones are collected, so that one run shows all of them.

use serde_json::{Value, json};

use super::rows::SESSION;
use crate::compare::{file_differences, list_differences, session_differences};
use crate::ops::{Answer, Refusal};
use crate::replay::Outcome;
use crate::scenario::Scenario;
use crate::session::sidecar_value;
use crate::stage::Stage;

pub(crate) struct Told {
    scenario: Scenario,
    outcomes: Vec<Outcome>,
    stage: Stage,
    differences: Vec<String>,
}

impl Told {
    pub(crate) fn new(scenario: Scenario, outcomes: Vec<Outcome>, stage: Stage) -> Self {
        Told { scenario, outcomes, stage, differences: Vec::new() }
    }

    pub(crate) fn into_differences(self) -> Vec<String> {
        self.differences
    }

    /// The stage behind the last step, for questions that no step asks.
    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn answer(&self, step: usize) -> &Answer {
        &self.outcomes[step].answer
    }

    pub(super) fn expect(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.differences.push(what.into());
        }
    }

    pub(super) fn expect_equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, expected: T) {
        self.expect(found == expected, format!("{what}: {found:?}, expected {expected:?}"));
    }

    fn note(&mut self, step: usize, differences: Vec<String>) {
        let op = self.scenario.steps[step].op();
        self.differences.extend(differences.iter().map(|difference| format!("step {step} {op}: {difference}")));
    }

    fn session(&self, step: usize) -> Option<&Value> {
        self.answer(step).as_ref().ok().and_then(|answer| answer.get("session"))
    }

    /// The session that a step read has these keys, and these rows and cards alone.
    pub(super) fn session_is(&mut self, step: usize, expected: &Value) {
        let differences = match self.session(step) {
            Some(session) => session_differences(session, expected),
            None => vec![format!("no session came: {:?}", self.answer(step).as_ref().err())],
        };
        self.note(step, differences);
    }

    /// The step touched these files and no others.
    fn touched(&mut self, step: usize, changed: &[&str]) {
        let expected = json!({"created": [], "changed": changed, "deleted": []});
        let differences = file_differences(&self.outcomes[step].touched, &expected);
        self.note(step, differences);
    }

    /// These steps left every file as it was.
    pub(super) fn touched_nothing(&mut self, steps: impl IntoIterator<Item = usize>) {
        steps.into_iter().for_each(|step| self.touched(step, &[]));
    }

    /// The last row of the session that a step read.
    pub(super) fn last_row(&self, step: usize) -> Value {
        let rows = self.session(step).and_then(|session| session["messages"].as_array());
        rows.and_then(|rows| rows.last()).cloned().unwrap_or_default()
    }

    /// The step read the session and wrote it, with these rows and cards, and with no turn pending.
    fn wrote(&mut self, step: usize, updated_at: f64, rows: &Value, cards: &Value) {
        self.session_is(
            step,
            &json!({
                "active_stream_id": null,
                "pending_user_message": null,
                "pending_attachments": [],
                "pending_started_at": null,
                "pending_user_source": null,
                "updated_at": updated_at,
                "message_count": rows.as_array().map_or(0, Vec::len),
                "messages": rows,
                "tool_calls": cards,
            }),
        );
        self.touched(step, &[&sidecar_path()]);
        let stored = self.outcomes[step].files.bytes(&sidecar_path()).and_then(sidecar_value);
        let is_stored = stored.as_ref() == self.session(step);
        self.expect(is_stored, format!("step {step}: what was answered is not what is stored"));
    }

    /// The step repaired a dead turn, which is a change of the session.
    pub(super) fn repaired(&mut self, step: usize, rows: &Value, cards: &Value) {
        let now = self.scenario.steps[step].now();
        self.wrote(step, now, rows, cards);
    }

    /// The step decided an armed marker, or counted an attempt, which does not move the session up in lists.
    pub(super) fn retried(&mut self, step: usize, rows: &Value, cards: &Value) {
        let before = self.session_before(0);
        self.wrote(step, before["updated_at"].as_f64().unwrap_or(0.0), rows, cards);
    }

    /// These steps wrote nothing and read the session as it was read or written before.
    pub(super) fn unchanged(&mut self, steps: impl IntoIterator<Item = usize>) {
        for step in steps {
            let before = self.session_before(step);
            self.session_is(step, &before);
            let is_same = self.session(step).is_none_or(|session| *session == before);
            self.expect(is_same, format!("step {step}: the session is not what it was"));
            self.touched(step, &[]);
        }
    }

    /// What the last read before a step gave; before the first, what was on disk.
    fn session_before(&self, step: usize) -> Value {
        let read = (0..step).rev().find_map(|step| self.session(step).cloned());
        let stored = || self.scenario.sidecar_before(SESSION).and_then(|bytes| sidecar_value(&bytes));
        read.or_else(stored).unwrap_or_default()
    }

    /// The step was refused with one of these words, and touched nothing.
    pub(super) fn refused(&mut self, step: usize, codes: &[&str]) {
        let is_expected = match self.answer(step) {
            Err(Refusal::BadId) => codes.contains(&"bad_id"),
            Err(Refusal::Store(code)) => codes.contains(code),
            _ => false,
        };
        let text = format!("step {step}: {:?}, expected to be refused with one of {codes:?}", self.answer(step));
        self.expect(is_expected, text);
        self.touched(step, &[]);
    }

    /// The one run's journal holds events of these numbers and damage of these kinds at these offsets.
    pub(super) fn journal_holds(&mut self, seqs: &[u64], damage: &[(&str, u64)]) {
        let (session, run) = (super::rows::session(), super::rows::run());
        let found = self.stage.store().read_events(&session, &run, Default::default()).unwrap();
        let found_seqs: Vec<u64> = found.events.iter().filter_map(|event| event.seq).collect();
        let found_damage: Vec<_> = found.damage.iter().map(|damage| (damage.kind.code(), damage.offset)).collect();
        self.expect_equal("numbers of the journal's events", found_seqs.as_slice(), seqs);
        self.expect_equal("damage in the journal", found_damage.as_slice(), damage);
    }

    /// A step's answer has this list, item by item.
    pub(super) fn list_is(&mut self, step: usize, key: &str, expected: &Value) {
        let found = self.answer(step).as_ref().map_or(Value::Null, |answer| answer[key].clone());
        let differences = list_differences(key, &found, expected);
        self.note(step, differences);
    }
}

pub(super) fn sidecar_path() -> String {
    format!("sessions/{SESSION}.json")
}
