//! What must hold after a power cut or the death of the process, at any moment.

use lastword::storage::sim::{Crash, SimDisk};
use lastword::{ReadOptions, RunId, Store, StoreError};

use crate::world::{Acks, Moment, RunAcks, session_id};

/// Holds the store to its word, as if each of these had been its last moment.
pub(crate) fn check_moments(moments: &[Moment]) {
    for (at, moment) in moments.iter().enumerate() {
        let has_more_acks = at == 0 || moments[at - 1].acks != moment.acks;
        let has_synced = moment.disk.log().last().is_some_and(|line| line.contains(" sync"));
        if has_more_acks || has_synced || at + 1 == moments.len() {
            // Only a sync changes what a power cut leaves at least, only an acknowledgement what it must.
            check_moment(at, moment, End::Power(Crash::LoseAll));
        }
        match at % 4 {
            0 => check_moment(at, moment, End::Kill),
            2 => check_moment(at, moment, End::Power(Crash::Seeded(at as u64))),
            _ => {}
        }
    }
}

fn check_moment(at: usize, moment: &Moment, end: End) {
    let Moment { disk, acks, options } = moment;
    let disk = disk.copy();
    end.strike(&disk);
    let checked = options.open(&disk).map_err(|error| format!("the store does not open: {error:?}"));
    if let Err(wrong) = checked.and_then(|store| check(&store, &disk, acks, end)) {
        panic!("{wrong}\nafter {end:?} before operation {at}\n{acks:#?}\n{}", disk.log().join("\n"));
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Kill,
    Power(Crash),
}

impl End {
    fn strike(self, disk: &SimDisk) {
        match self {
            End::Kill => disk.kill(),
            End::Power(crash) => disk.power_cut(crash),
        }
    }
}

fn check(store: &Store, disk: &SimDisk, acks: &Acks, end: End) -> Result<(), String> {
    if let Some(finding) = store.findings().into_iter().find(|finding| finding.code != "checksum_mismatch") {
        return Err(format!("no other program was here: {finding:?}"));
    }
    for ((session, run), told) in &acks.runs {
        match acks.deleted.get(session) {
            None => check_run(store, session, run, told, end)?,
            Some(is_acknowledged) => check_deleted(store, disk, session, told, *is_acknowledged, end)?,
        }
    }
    Ok(())
}

/// The events that must be there.
fn promised(told: &RunAcks, end: End) -> impl Iterator<Item = (&u64, &String)> {
    let to = match end {
        End::Kill => u64::MAX,
        // What is acknowledged as durable covers everything before it.
        End::Power(_) => told.durable_to,
    };
    told.appended.range(..=to)
}

fn check_run(store: &Store, session: &str, run: &str, told: &RunAcks, end: End) -> Result<(), String> {
    let (session, run) = (session_id(session), RunId::parse(run).unwrap());
    let found = store.read_events(&session, &run, ReadOptions::default()).map_err(|error| format!("{error:?}"))?;
    let seqs: Vec<u64> = found.events.iter().filter_map(|event| event.seq).collect();
    if !seqs.is_sorted_by(|one, next| one < next) {
        return Err(format!("the numbers of {run} are {seqs:?}"));
    }
    for (seq, text) in promised(told, end) {
        let event = found.events.iter().find(|event| event.seq == Some(*seq));
        if !event.is_some_and(|event| event.payload().contains(text.as_str())) {
            return Err(format!("event {seq} of {run} of {session}, {text:?}, is lost: {seqs:?} are there"));
        }
    }
    let shown = told.shown_to;
    if (1..=shown).any(|seq| !seqs.contains(&seq))
        && (end == End::Kill || store.durability() == lastword::Durability::Durable)
    {
        return Err(format!("readers were shown {run} of {session} up to {shown}, and {seqs:?} are there"));
    }
    match told.has_ended {
        true => check_answer(store, &session, told),
        false => Ok(()),
    }
}

/// A turn whose end was acknowledged is in the transcript as it was said, without a word about a recovery.
fn check_answer(store: &Store, session: &lastword::SessionId, told: &RunAcks) -> Result<(), String> {
    let rows = store.get_session(session).map_err(|error| format!("{error:?}"))?;
    let answer: String = told.appended.values().map(String::as_str).collect();
    let rows: Vec<_> = rows.messages().collect();
    let is_answered = rows.iter().filter(|row| row.content() == answer).count() == 1;
    let is_recovered = rows.iter().any(|row| row.is_error());
    if is_answered && !is_recovered { Ok(()) } else { Err(format!("the answer {answer:?} is not in {rows:?}")) }
}

/// What was acknowledged before its session was deleted is in its place, or in the trash. Once the deletion is acknowledged,
/// nothing of it can be used.
fn check_deleted(
    store: &Store,
    disk: &SimDisk,
    session: &str,
    told: &RunAcks,
    is_acknowledged: bool,
    end: End,
) -> Result<(), String> {
    let read = store.get_session_for_scan(&session_id(session));
    if is_acknowledged && !matches!(read, Err(StoreError::NotFound { .. })) {
        return Err(format!("the deleted session is back: {read:?}"));
    }
    let files = disk.files();
    let journals = files.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "jsonl"));
    let text: String = journals.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
    let lost = promised(told, end).find(|(_, said)| !text.contains(&format!("\"{said}\"")));
    lost.map_or(Ok(()), |lost| Err(format!("{lost:?} of the deleted session is lost")))
}
