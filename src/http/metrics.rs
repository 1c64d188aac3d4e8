//! What the server counts of itself, and the text in which it tells that and what the store counts.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;

use crate::meter::{Counter, Histogram, NANOS_BOUNDS, Spread};

/// Bounds of how many bytes a follower is behind.
const LAG_BOUNDS: &[u64] = &[256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 16_777_216];

/// A number of things that are there now.
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicI64);

impl Gauge {
    pub(super) fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, less: i64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the server counts.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Requests by the hundreds of their status.
    statuses: [Counter; 5],
    request_time: Histogram,
    append_time: Histogram,
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
    pub(super) followers: Gauge,
    pub(super) follower_lag: Histogram,
    pub(super) gaps: Counter,
    pub(super) snapshots: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            statuses: Default::default(),
            request_time: Histogram::new(NANOS_BOUNDS),
            append_time: Histogram::new(NANOS_BOUNDS),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            followers: Gauge::default(),
            follower_lag: Histogram::new(LAG_BOUNDS),
            gaps: Counter::default(),
            snapshots: Counter::default(),
        }
    }
}

impl Metrics {
    /// A request was answered, or its answer has begun.
    pub(super) fn answered(&self, status: StatusCode, took: Duration) {
        let hundreds = usize::from(status.as_u16() / 100).clamp(1, 5);
        self.statuses[hundreds - 1].add(1);
        self.request_time.observe_time(took);
    }

    /// Events of an outside producer were taken, as durable as it asked for.
    pub(super) fn appended(&self, took: Duration) {
        self.append_time.observe_time(took);
    }

    /// All of it as text.
    pub(super) fn write(&self, text: &mut Exposition) {
        let labels = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        text.head("lastword_http_requests_total", "counter", "Requests by the class of their status.");
        for (label, count) in labels.iter().zip(&self.statuses) {
            text.value("lastword_http_requests_total", &format!("status=\"{label}\""), count.get());
        }
        text.times("lastword_http_request_seconds", "Time until an answer began.", &self.request_time.spread());
        text.times(
            "lastword_http_append_seconds",
            "Time until an append was acknowledged.",
            &self.append_time.spread(),
        );
        text.gauge("lastword_http_connections", "Connections that are open.", self.connections.get());
        text.counter(
            "lastword_http_connections_refused_total",
            "Connections that failed before they began.",
            self.refused_connections.get(),
        );
        text.gauge("lastword_followers", "Readers that follow a run, a session or the list.", self.followers.get());
        text.spread("lastword_follower_lag_bytes", "How far followers are behind.", &self.follower_lag.spread(), 1.0);
        text.counter("lastword_follower_gaps_total", "Followers that were too slow.", self.gaps.get());
        text.counter("lastword_follower_snapshots_total", "Cursors that meant nothing.", self.snapshots.get());
    }
}

/// Numbers in the text format that Prometheus reads.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).and_then(|()| self.text.write_char('\n')).expect("memory takes what is written");
    }

    pub(super) fn value(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.value(name, "", value);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, "gauge", help);
        self.value(name, "", value);
    }

    /// A spread of nanoseconds, told in seconds.
    pub(super) fn times(&mut self, name: &str, help: &str, spread: &Spread) {
        self.spread(name, help, spread, 1e-9);
    }

    pub(super) fn spread(&mut self, name: &str, help: &str, spread: &Spread, unit: f64) {
        self.head(name, "histogram", help);
        for (bound, count) in spread.cumulative() {
            let bound = bound.map_or("+Inf".to_owned(), |bound| (bound as f64 * unit).to_string());
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_sum {}", spread.sum as f64 * unit));
        self.line(format_args!("{name}_count {}", spread.count()));
    }
}
