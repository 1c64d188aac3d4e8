//! The operations of a scenario, each done through the public interface of the store, with its answer as JSON.

use std::fs::{self, OpenOptions};
use std::io::Write;

use lastword::clock::Timestamp;
use lastword::{
    AppendError, Event, List, Metadata, ReadOptions, RunId, RunSummary, SaveIntent, SaveOptions, Session, SessionId,
    StoreError,
};
use serde_json::{Value, json};

use crate::compare::LISTS;
use crate::scenario::Step;
use crate::session::{listing_value, metadata_value, session_value};
use crate::stage::Stage;

/// What came of a step.
pub(crate) type Answer = Result<Value, Refusal>;

/// Why a step got no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refusal {
    /// No session and no run can have this id; nobody was asked.
    BadId,
    /// The store's word for it.
    Store(&'static str),
    /// This is no operation that scenarios are described with.
    UnknownOp,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::Store(error.code())
    }
}

/// Does a step.
pub(crate) fn perform(stage: &mut Stage, step: &Step) -> Answer {
    match step.op() {
        "get_session" if step.is_set("metadata_only") => read_metadata(stage, step),
        "get_session" => read_session(stage, step),
        "get_session_for_scan" => scan_session(stage, step),
        "load_set_save" => load_set_save(stage, step),
        "append_run_event" => append_event(stage, step),
        "read_run_events" => read_events(stage, step),
        "latest_run_summary" => summarize(stage, step),
        "delete_run_journal" => delete_journals(stage, step),
        op => around_the_store(stage, step, op),
    }
}

/// What happens beside the store.
fn around_the_store(stage: &mut Stage, step: &Step, op: &str) -> Answer {
    match op {
        "restart" => stage.restart(step.number("server_start_time")),
        "register_stream" => stage.register("stream", step.text("stream_id")),
        "unregister_stream" => stage.unregister("stream", step.text("stream_id")),
        "register_run" => stage.register("run", step.text("stream_id")),
        "unregister_run" => stage.unregister("run", step.text("stream_id")),
        "set_cache_limit" => stage.limit_cache(step.count("limit").unwrap_or(u64::MAX) as usize),
        "hold_session_lock" => stage.hold_lock(&session_id(step)?),
        "release_session_lock" => stage.release_lock(&session_id(step)?),
        "append_bytes" => append_bytes(stage, step),
        "write_file" => stage.replace_file(step.text("path"), &step.bytes("base64")),
        "delete_file" => drop(fs::remove_file(stage.root().join(step.text("path")))),
        _ => return Err(Refusal::UnknownOp),
    }
    Ok(Value::Null)
}

fn append_bytes(stage: &Stage, step: &Step) {
    let place = stage.place_for(step.text("path"));
    let mut file = OpenOptions::new().append(true).create(true).open(place).unwrap();
    file.write_all(&step.bytes("base64")).unwrap();
}

fn session_id(step: &Step) -> Result<SessionId, Refusal> {
    SessionId::parse(step.text("sid")).map_err(|_| Refusal::BadId)
}

fn run_id(step: &Step) -> Result<RunId, Refusal> {
    RunId::parse(step.text("run_id")).map_err(|_| Refusal::BadId)
}

fn cached(stage: &Stage) -> Value {
    stage.store().cached_sessions().iter().map(|id| json!(id.as_str())).collect()
}

fn read_session(stage: &Stage, step: &Step) -> Answer {
    let session = stage.store().get_session(&session_id(step)?)?;
    Ok(json!({"session": session_value(&session), "cached_after": cached(stage)}))
}

fn scan_session(stage: &Stage, step: &Step) -> Answer {
    let session = stage.store().get_session_for_scan(&session_id(step)?)?;
    Ok(json!({"session": session_value(&session), "cached_after": cached(stage)}))
}

fn read_metadata(stage: &Stage, step: &Step) -> Answer {
    let metadata: Metadata = stage.store().metadata(&session_id(step)?)?;
    Ok(json!({
        "session": metadata_value(&metadata),
        "metadata_message_count": metadata.message_count(),
        "cached_after": cached(stage),
    }))
}

fn load_set_save(stage: &Stage, step: &Step) -> Answer {
    let id = session_id(step)?;
    let mut session = Session::clone(&*stage.store().get_session(&id)?);
    change(&mut session, step).map_err(|_| Refusal::Store("wrong_shape"))?;
    stage.store().save(&session, save_options(step))?;
    Ok(json!({"index": listing(stage)?, "bak_messages": kept_rows(stage, &id).last()}))
}

fn change(session: &mut Session, step: &Step) -> Result<(), lastword::model::NotAList> {
    for (key, value) in step.value("set").and_then(Value::as_object).into_iter().flatten() {
        match LISTS.iter().position(|list| list == key) {
            Some(at) => set_list(session, List::ALL[at], value)?,
            None => session.set(key, &value.to_string()),
        }
    }
    if let Some(rows) = step.count("truncate_messages_to") {
        session.truncate(List::Messages, rows as usize)?;
    }
    let rows = step.value("append_messages").and_then(Value::as_array);
    rows.into_iter().flatten().try_for_each(|row| session.push_item(List::Messages, &row.to_string()))
}

fn set_list(session: &mut Session, list: List, items: &Value) -> Result<(), lastword::model::NotAList> {
    session.truncate(list, 0)?;
    items.as_array().into_iter().flatten().try_for_each(|item| session.push_item(list, &item.to_string()))
}

/// To cut rows is to state that fewer are meant, and so is whatever the reference program was seen to accept. Rows that
/// are set as a whole may come from a stale snapshot.
fn save_options(step: &Step) -> SaveOptions {
    let is_stated = step.count("truncate_messages_to").is_some() || step.recorded_result().is_some();
    SaveOptions {
        intent: if is_stated { SaveIntent::Shrink } else { SaveIntent::Keep },
        touch_updated_at: step.value("touch_updated_at").is_none_or(|touch| touch == true),
    }
}

fn listing(stage: &Stage) -> Answer {
    let mut listed = Vec::new();
    for entry in stage.store().list()? {
        let session = stage.store().get_session_for_scan(&entry.id)?;
        listed.push(listing_value(&stage.store().metadata(&entry.id)?, &session_value(&session)));
    }
    Ok(Value::Array(listed))
}

/// How many rows each version has that was kept when another replaced it, the latest last.
pub(crate) fn kept_rows(stage: &Stage, session: &SessionId) -> Vec<usize> {
    let folder = stage.root().join("sessions/_kept").join(session.as_str());
    let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut kept: Vec<_> = paths.map(|path| (fs::metadata(&path).unwrap().modified().unwrap(), path)).collect();
    kept.sort();
    let rows = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok()?["messages"].as_array().map(Vec::len);
    kept.iter().filter_map(|(_, path)| rows(&fs::read(path).unwrap())).collect()
}

fn append_event(stage: &Stage, step: &Step) -> Answer {
    let (session, run) = (session_id(step)?, run_id(step)?);
    let payload = step.value("payload").map_or_else(|| "null".to_owned(), Value::to_string);
    let event = Event::new(step.text("event"), &payload).map_err(|error| StoreError::from(AppendError::from(error)))?;
    let event = match step.number("created_at") {
        Some(at) => event.at(Timestamp::from_seconds(at)),
        None => event,
    };
    let seq = stage.store().adopt_run(&session, &run)?.append(event)?.last_seq;
    let options = ReadOptions { after_seq: seq - 1, max_seq: seq };
    let found = stage.store().read_events(&session, &run, options)?;
    Ok(serde_json::from_str(&found.events[0].line).expect("what was appended is JSON"))
}

fn read_events(stage: &Stage, step: &Step) -> Answer {
    let (session, run) = (session_id(step)?, run_id(step)?);
    let options = ReadOptions {
        after_seq: step.count("after_seq").unwrap_or(0),
        max_seq: step.count("max_seq").unwrap_or(u64::MAX),
    };
    let found = stage.store().read_events(&session, &run, options)?;
    let events: Vec<Value> = found.events.iter().filter_map(|event| serde_json::from_str(&event.line).ok()).collect();
    let damage = found.damage.iter().map(|damage| json!({"kind": damage.kind.code(), "offset": damage.offset}));
    let (session, run) = (session.as_str(), run.as_str());
    Ok(json!({"session_id": session, "run_id": run, "events": events, "malformed": damage.collect::<Vec<_>>()}))
}

/// The summary of one run, which may have no journal, or of the run of a session that was written to last.
fn summarize(stage: &Stage, step: &Step) -> Answer {
    let session = session_id(step)?;
    if step.value("run_id").is_some() {
        let run = run_id(step)?;
        let summary = stage.store().run_summary(&session, &run)?.unwrap_or_default();
        return Ok(summary_value(&session, &run, &summary));
    }
    let mut latest: Option<(RunId, RunSummary)> = None;
    for run in stage.store().runs(&session)? {
        let Some(summary) = stage.store().run_summary(&session, &run)? else { continue };
        if latest.as_ref().is_none_or(|(_, known)| known.last_event_at <= summary.last_event_at) {
            latest = Some((run, summary));
        }
    }
    Ok(latest.map_or(Value::Null, |(run, summary)| summary_value(&session, &run, &summary)))
}

fn summary_value(session: &SessionId, run: &RunId, summary: &RunSummary) -> Value {
    let terminal = summary.terminal.as_ref();
    json!({
        "session_id": session.as_str(),
        "run_id": run.as_str(),
        "stream_id": run.as_str(),
        "last_seq": summary.last_seq,
        "last_event_id": summary.last_event_id(run),
        "event_count": summary.events,
        "terminal": terminal.is_some(),
        "terminal_event": terminal.map(|terminal| &terminal.name),
        "terminal_state": summary.state(),
    })
}

/// Removes one run of a session, or all.
fn delete_journals(stage: &Stage, step: &Step) -> Answer {
    let session = session_id(step)?;
    let runs = match step.value("run_id") {
        Some(_) => vec![run_id(step)?],
        None => stage.store().runs(&session)?,
    };
    for run in &runs {
        stage.store().remove_run(&session, run)?;
    }
    Ok(json!(!runs.is_empty()))
}
