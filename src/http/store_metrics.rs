//! What the store counts, in the names under which the server tells it.

use super::metrics::Exposition;
use crate::meter::{Recoveries, Snapshot};
use crate::store::Store;

/// Writes what a store has done.
pub(super) fn write_store(store: &Store, text: &mut Exposition) {
    let counted = store.meter().snapshot();
    write_appends(&counted, text);
    write_syncs(&counted, text);
    write_recoveries(&counted.recoveries, text);
    text.counter("lastword_dead_runs_closed_total", "Dead runs ended for a reader.", counted.dead_runs_closed);
    text.counter("lastword_damaged_lines_total", "Damage met while recovering.", counted.damaged_lines);
    text.counter("lastword_findings_total", "What was wrong when the store was opened.", counted.findings);
    text.counter("lastword_cache_hits_total", "Sessions read from memory.", counted.cache_hits);
    text.counter("lastword_cache_misses_total", "Sessions read from disk.", counted.cache_misses);
    let held = store.cache_size();
    text.gauge("lastword_cache_sessions", "Sessions in memory.", held.sessions);
    text.gauge("lastword_cache_bytes", "Bytes of them.", held.bytes);
    text.gauge("lastword_store_writable", "1 unless a failed sync stopped the store.", u8::from(store.is_writable()));
}

fn write_appends(counted: &Snapshot, text: &mut Exposition) {
    let appends = &counted.appends;
    text.counter("lastword_appends_total", "Appends that were taken.", appends.calls);
    text.counter("lastword_appended_events_total", "Events that were appended.", appends.events);
    text.counter("lastword_appended_bytes_total", "Bytes of their lines.", appends.bytes);
    text.counter("lastword_appends_refused_total", "Appends that were refused.", appends.refused);
    text.counter("lastword_append_failures_total", "Appends that the disk failed.", appends.failures);
}

fn write_syncs(counted: &Snapshot, text: &mut Exposition) {
    text.counter("lastword_syncs_total", "Syncs of the commit log.", counted.syncs);
    text.counter("lastword_sync_failures_total", "Syncs that failed.", counted.sync_failures);
    text.spread("lastword_sync_batch_appends", "Durable writes of one sync.", &counted.batch_appends, 1.0);
    text.times("lastword_sync_seconds", "Time that a sync took.", &counted.sync_nanos);
    text.counter("lastword_save_failures_total", "Saves that failed.", counted.save_failures);
    text.times("lastword_save_seconds", "Time that a save took.", &counted.save_nanos);
}

fn write_recoveries(recoveries: &Recoveries, text: &mut Exposition) {
    let outcomes = [
        ("folded", recoveries.folded),
        ("recovered", recoveries.recovered),
        ("armed", recoveries.armed),
        ("resolved", recoveries.resolved),
        ("grown", recoveries.grown),
        ("ended_late", recoveries.ended_late),
        ("looked_in_vain", recoveries.looked_in_vain),
        ("given_up", recoveries.given_up),
        ("mended", recoveries.mended),
    ];
    text.head("lastword_recoveries_total", "counter", "What became of interrupted answers.");
    for (outcome, count) in outcomes {
        text.value("lastword_recoveries_total", &format!("outcome=\"{outcome}\""), count);
    }
    text.counter("lastword_markers_armed_total", "Markers that ask for another look.", recoveries.armed);
}
