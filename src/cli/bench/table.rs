//! The table: one line an operation, for people or for machines.

use std::io::{self, Write};

use serde::Serialize;

use super::Outcomes;

/// How ours compares with the limit, and how it should.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// At least this many times the limit's speed.
    AtLeast(f64),
    /// At most this many times what the limit takes.
    AtMost(f64),
    /// Shown for itself.
    None,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    /// Time: less is better.
    #[serde(rename = "us")]
    Micros,
    /// Memory: less is better.
    #[serde(rename = "MB")]
    Megabytes,
    /// Speed: more is better.
    #[serde(rename = "events/s")]
    EventsPerSecond,
    /// Throughput: more is better.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
}

/// What was measured on both sides.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    pub(super) ours: f64,
    pub(super) limit: f64,
    pub(super) unit: Unit,
    pub(super) rounds: usize,
}

impl Figures {
    /// Microseconds an event, the other way round.
    pub(super) fn as_speed(self) -> Self {
        Figures { ours: 1e6 / self.ours, limit: 1e6 / self.limit, unit: Unit::EventsPerSecond, rounds: self.rounds }
    }
}

/// One line of the table.
pub(super) struct Line {
    pub(super) operation: String,
    pub(super) limit: &'static str,
    pub(super) figures: Figures,
    pub(super) target: Target,
}

impl Line {
    fn ratio(&self) -> f64 {
        let Figures { ours, limit, unit, .. } = self.figures;
        match (self.target, unit) {
            (Target::AtLeast(_), Unit::Micros | Unit::Megabytes) => limit / ours,
            _ => ours / limit,
        }
    }

    fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::AtLeast(least) => Some(self.ratio() >= least),
            Target::AtMost(most) => Some(self.ratio() <= most),
            Target::None => None,
        }
    }
}

/// A line for machines.
#[derive(Serialize)]
struct Wire<'a> {
    operation: &'a str,
    ours: f64,
    limit: f64,
    unit: Unit,
    beside: &'a str,
    ratio: f64,
    at_least: Option<f64>,
    at_most: Option<f64>,
    met: Option<bool>,
    rounds: usize,
}

/// Where the lines go.
pub(super) struct Table {
    pub(super) json: bool,
    /// Whether the sizes are those that the targets are for.
    pub(super) is_judged: bool,
}

impl Table {
    pub(super) fn begin(&self) -> Outcomes<()> {
        match self.json {
            true => Ok(()),
            false => print(&columns(["operation", "ours", "limit", "the limit", "ratio", "target", ""])),
        }
    }

    /// Prints a line as soon as it is known.
    pub(super) fn add(&self, line: &Line) -> Outcomes<()> {
        let met = line.is_met().filter(|_| self.is_judged);
        match self.json {
            true => print(&for_machines(line, met)?),
            false => print(&for_people(line, met)),
        }
    }
}

fn for_people(line: &Line, met: Option<bool>) -> String {
    let Figures { ours, limit, unit, .. } = line.figures;
    let target = match line.target {
        Target::AtLeast(least) => format!(">= {least}"),
        Target::AtMost(most) => format!("<= {most}"),
        Target::None => "-".to_owned(),
    };
    let verdict = met.map_or("-", |met| if met { "met" } else { "MISSED" });
    let (ours, limit, ratio) = (amount(ours, unit), amount(limit, unit), format!("{:.2}", line.ratio()));
    columns([&line.operation, &ours, &limit, line.limit, &ratio, &target, verdict])
}

fn columns([operation, ours, limit, what, ratio, target, verdict]: [&str; 7]) -> String {
    let line = format!("{operation:<44} {ours:>13} {limit:>13}  {what:<42} {ratio:>6} {target:>8} {verdict}");
    line.trim_end().to_owned()
}

fn amount(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Micros => format!("{value:.2} us"),
        Unit::Megabytes => format!("{value:.2} MB"),
        Unit::EventsPerSecond => format!("{}/s", grouped(value as usize)),
        Unit::MegabytesPerSecond => format!("{value:.0} MB/s"),
    }
}

/// A number with a comma between thousands.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn for_machines(line: &Line, met: Option<bool>) -> Outcomes<String> {
    let Figures { ours, limit, unit, rounds } = line.figures;
    let (at_least, at_most) = match line.target {
        Target::AtLeast(least) => (Some(least), None),
        Target::AtMost(most) => (None, Some(most)),
        Target::None => (None, None),
    };
    let (operation, beside, ratio) = (&*line.operation, line.limit, line.ratio());
    let wire = Wire { operation, ours, limit, unit, beside, ratio, at_least, at_most, met, rounds };
    Ok(serde_json::to_string(&wire)?)
}

fn print(line: &str) -> Outcomes<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ours: f64, limit: f64, unit: Unit, target: Target) -> Line {
        Line { operation: "x".to_owned(), limit: "y", figures: Figures { ours, limit, unit, rounds: 1 }, target }
    }

    #[test]
    fn at_least_is_about_speed_and_at_most_about_cost() {
        let check = |unit, target, ratio, is_met| {
            let line = line(2.0, 1.0, unit, target);
            assert_eq!((line.ratio(), line.is_met()), (ratio, is_met));
        };
        check(Unit::Micros, Target::AtMost(2.0), 2.0, Some(true));
        check(Unit::Micros, Target::AtMost(1.9), 2.0, Some(false));
        check(Unit::Micros, Target::AtLeast(0.5), 0.5, Some(true));
        check(Unit::Micros, Target::AtLeast(0.6), 0.5, Some(false));
        check(Unit::EventsPerSecond, Target::AtLeast(2.0), 2.0, Some(true));
        check(Unit::EventsPerSecond, Target::AtLeast(2.1), 2.0, Some(false));
        check(Unit::EventsPerSecond, Target::None, 2.0, None);
    }

    #[test]
    fn thousands_are_grouped() {
        let check = |number, text| assert_eq!(grouped(number), text);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(1_234_567, "1,234,567");
    }
}
