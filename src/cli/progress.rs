//! How far a long look has come, on a terminal, once it takes longer than a second. Nothing in a pipe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lastword::doctor::{DoctorOptions, Progress};

const SHOWN_AFTER: Duration = Duration::from_secs(1);

const STYLE: &str = "{elapsed_precise} {wide_bar} {pos}/{len} sessions, {msg} of journals";

/// A line on stderr that goes when it is dropped.
pub(super) struct ProgressLine {
    bar: ProgressBar,
}

impl ProgressLine {
    /// The same options, with this line told how far it has come.
    pub(super) fn show(options: DoctorOptions) -> (Self, DoctorOptions) {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(STYLE).expect("this is a template"));
        let (shown, next_tenth) = (bar.clone(), AtomicU64::new(0));
        let on_progress = move |progress: Progress| {
            let elapsed = shown.elapsed();
            let tenth = elapsed.as_millis() as u64 / 100;
            if elapsed < SHOWN_AFTER || next_tenth.fetch_max(tenth + 1, Ordering::Relaxed) > tenth {
                return;
            }
            if shown.is_hidden() {
                // Stays hidden if that is no terminal.
                shown.set_draw_target(ProgressDrawTarget::stderr());
            }
            shown.set_length(progress.sessions_total);
            shown.set_message(bytes(progress.bytes));
            shown.set_position(progress.sessions);
        };
        (ProgressLine { bar }, DoctorOptions { on_progress: Some(Arc::new(on_progress)), ..options })
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A number of bytes as people read it.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    while number >= 1000.0 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{number:.1} {}", UNITS[unit]) }
}
